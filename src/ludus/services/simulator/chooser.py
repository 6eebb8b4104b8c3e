"""Where the forward pass is run that actions are sampled from: in the simulator itself, or by inference workers."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest

__all__ = ["Chooser", "InlineChooser", "RemoteChooser"]


class Chooser(Protocol):
    """`begin` asks for one group's parameters, `finish` has them; other groups are tended in between."""

    is_remote: bool

    def begin(self, obs: Nest, memory: Nest, first: NDArray[np.bool_]) -> Any: ...

    def finish(self, ticket: Any) -> tuple[NDArray[Any], Nest]:
        """The parameters of the distribution, and the memory afterwards."""
        ...


class InlineChooser:
    """The policy's own runner, in this process."""

    is_remote = False

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def begin(self, obs: Nest, memory: Nest, first: NDArray[np.bool_]) -> Any:
        return obs, memory, first

    def finish(self, ticket: Any) -> tuple[NDArray[Any], Nest]:
        params, memory = self._runner(*ticket)
        return params, memory


class RemoteChooser:
    """Inference workers, asked for the version that `version` says now; `client` is a `ModelClient`."""

    is_remote = True

    def __init__(self, client: Any) -> None:
        self._client = client
        self.version: int | str = "latest"

    def begin(self, obs: Nest, memory: Nest, first: NDArray[np.bool_]) -> Any:
        return self._client.ask(self.version, (obs,) if memory is None else (obs, memory, first), {})

    def finish(self, ticket: Any) -> tuple[NDArray[Any], Nest]:
        outputs = ticket.result()
        return outputs["params"], outputs.get("memory")
