"""Forward passes by an inference service, whichever of its replicas answers.

inference = InferenceClient(remote)
asked = inference.submit(12, obs, memory, first)     # go on
asked.result()["params"]                             # by version 12 and no other
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.data.nest import Nest
from ludus.rpc.call import Pending
from ludus.workers.solver import let_move

__all__ = ["InferenceClient", "PendingForward"]

_LOST = (errors.Unreachable, errors.OutcomeUnknown)
_RETRY_AFTER_S = 0.02


class _Remote(Protocol):
    """What a handle becomes: `ludus.workers.remote.Remote`."""

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending: ...


class InferenceClient:
    """Safe to share between threads. `timeout_s`: how long a request is given to other replicas when one is lost."""

    def __init__(self, remote: _Remote, *, timeout_s: float = 60.0) -> None:
        self._remote = remote
        self._timeout_s = timeout_s

    def submit(self, version: int | str, obs: Nest, memory: Nest, first: NDArray[np.bool_]) -> PendingForward:
        """Ask for the parameters of n rows and go on. The arrays must not change before there is a result."""
        named = version if isinstance(version, str) else int(version)
        return PendingForward(self._remote, (named, obs, memory, first), time.monotonic() + self._timeout_s)

    def forward(self, version: int | str, obs: Nest, memory: Nest, first: NDArray[np.bool_]) -> dict[str, Nest]:
        """`submit` and wait."""
        return self.submit(version, obs, memory, first).result()


class PendingForward:
    """A request on its way. Running it twice does no harm, so another replica gets it if its own is lost or held up."""

    def __init__(self, remote: _Remote, arguments: tuple[Any, ...], until: float) -> None:
        self._remote = remote
        self._arguments = arguments
        self._until = until
        self._pending = let_move(remote.submit("forward", *arguments))

    @property
    def done(self) -> bool:
        """Whether `result` would not wait; an answer is taken in by waiting, or by `ludus.rpc.client.wait_any`."""
        return self._pending.done and not isinstance(self._pending.error, _LOST)

    @property
    def pending(self) -> Pending:
        """For `wait_any`."""
        return self._pending

    def result(self) -> dict[str, Nest]:
        """`params`, `memory` and the number of the `version`. Raises what the service did."""
        while True:
            try:
                answer: dict[str, Nest] = self._pending.result()
                return answer
            except _LOST:
                if time.monotonic() >= self._until:
                    raise
            time.sleep(_RETRY_AFTER_S)
            self._pending = let_move(self._remote.submit("forward", *self._arguments))
