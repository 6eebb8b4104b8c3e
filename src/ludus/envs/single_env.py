"""One copy of an env, as `LoopVectorEnv` plays it. Libraries of single environments are adapted to this."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from ludus.core import EnvSpec, TimeStep

__all__ = ["SingleEnv"]


class SingleEnv(Protocol):
    """`rows` are the env's own rows of the group's arrays, one for each agent, to be written in place.

    The loop has set `reward`, `terminated`, `truncated`, `first` and `failed` to nothing before either call, and
    takes care of `first`, of `failed`, and of `active` once an episode is over. Whatever raises is a failure: the
    loop then closes this env and makes another.
    """

    spec: EnvSpec

    def reset(self, seed: int, rows: TimeStep) -> None:
        """Begin an episode that the seed determines; write `obs`, `active`, `mask` and `global_state`."""
        ...

    def step(self, action: NDArray[Any], rows: TimeStep) -> bool:
        """Act, one action for each agent; write what follows. True if the episode is over for all agents."""
        ...

    def close(self) -> None: ...
