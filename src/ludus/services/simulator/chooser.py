"""Where a simulator's actions are chosen: by the policy in this process, or from what inference workers compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.core import TimeStep
from ludus.data.nest import Nest

if TYPE_CHECKING:
    from ludus.learn.policies.policy import Policy

__all__ = ["Chooser", "InlineChooser", "RemoteChooser"]


class Chooser(Protocol):
    """`begin` asks for the actions of one group of envs, `finish` returns them; other groups step in between."""

    is_remote: bool

    def begin(self, now: TimeStep, state: Nest) -> Any: ...

    def finish(self, ticket: Any, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[np.float32], Nest]:
        """The action of each row, its log-probability, and the policy's state afterwards."""
        ...


class InlineChooser:
    """The policy itself, in this process."""

    is_remote = False

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def begin(self, now: TimeStep, state: Nest) -> Any:
        return now, state

    def finish(self, ticket: Any, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[np.float32], Nest]:
        now, state = ticket
        return self._policy.act(now.obs, state, now.first, rng, now.mask)


class RemoteChooser:
    """Inference workers, asked for `version` by a `ModelClient`; their parameters are read by `head`."""

    is_remote = True

    def __init__(self, client: Any, head: Any) -> None:
        self._client = client
        self._head = head
        self.version: int | str = "latest"

    def begin(self, now: TimeStep, state: Nest) -> Any:
        args = (now.obs,) if state is None else (now.obs, state, now.first)
        return self._client.ask(self.version, args, {}), now.mask

    def finish(self, ticket: Any, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[np.float32], Nest]:
        asked, mask = ticket
        outputs = asked.result()
        return *self._head.choose(outputs["params"], rng, mask, greedy=False), outputs.get("state")
