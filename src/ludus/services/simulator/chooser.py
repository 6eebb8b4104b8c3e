"""Where a simulator's actions are chosen: by the policy in this process, or from what inference workers compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.core import TimeStep
from ludus.data.nest import Nest

if TYPE_CHECKING:
    from ludus.learn.policies.policy import Policy

__all__ = ["Acted", "Chooser", "InlineChooser", "RemoteChooser"]


class Acted(NamedTuple):
    """What was chosen for the rows of one group."""

    action: NDArray[Any]
    logp: NDArray[np.float32]  # of the action
    state: Nest  # of the policy, afterwards
    extra: Nest = None  # what an algorithm learns from besides: `Segment.extra` has it


class Chooser(Protocol):
    """`begin` asks for the actions of one group of envs, `finish` returns them; other groups step in between."""

    is_remote: bool

    @property
    def extra_spec(self) -> Nest:
        """Of `Acted.extra`, of one row; `None` if there is none."""
        ...

    def begin(self, now: TimeStep, state: Nest, rows: slice) -> Any:
        """`rows` are those of the group among all of the simulator."""
        ...

    def finish(self, ticket: Any, rng: np.random.Generator) -> Acted: ...


class InlineChooser:
    """The policy itself, in this process. `exponents`: how much each row explores, see `Head.spread_exploration`."""

    is_remote = False
    extra_spec: Nest = None

    def __init__(self, policy: Policy, exponents: NDArray[np.float32] | None = None) -> None:
        self._policy = policy
        self._exponents = exponents

    def begin(self, now: TimeStep, state: Nest, rows: slice) -> Any:
        return now, state, rows

    def finish(self, ticket: Any, rng: np.random.Generator) -> Acted:
        now, state, rows = ticket
        exponents = None if self._exponents is None else self._exponents[rows]
        return Acted(*self._policy.act(now.obs, state, now.first, rng, now.mask, exponents=exponents))


class RemoteChooser:
    """Inference workers, asked for `version` by a `ModelClient`; their parameters are read by `head`."""

    is_remote = True
    extra_spec: Nest = None

    def __init__(self, client: Any, head: Any, exponents: NDArray[np.float32] | None = None) -> None:
        self._client = client
        self._head = head
        self._exponents = exponents
        self.version: int | str = "latest"

    def begin(self, now: TimeStep, state: Nest, rows: slice) -> Any:
        args = (now.obs,) if state is None else (now.obs, state, now.first)
        return self._client.ask(self.version, args, {}), now.mask, rows

    def finish(self, ticket: Any, rng: np.random.Generator) -> Acted:
        asked, mask, rows = ticket
        outputs = asked.result()
        params = outputs["params"]
        if self._exponents is not None:
            params = self._head.spread_exploration(params, self._exponents[rows])
        action, logp = self._head.choose(params, rng, mask, greedy=False)
        return Acted(action, logp, outputs.get("state"))
