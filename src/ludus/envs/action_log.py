"""The actions of every env since its episode began, in one array that grows when it must."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.spec import ArraySpec
from ludus.errors import EnvError

__all__ = ["ActionLog"]

_CAPACITY = 1024


class ActionLog:
    """One entry for each step of the group; an env's episode is the entries since its own beginning."""

    def __init__(self, num_envs: int, num_agents: int, action: ArraySpec) -> None:
        self._shape = (num_envs, num_agents, *action.shape)
        self._flat_shape = (num_envs * num_agents, *action.shape)
        self._entries = np.zeros((_CAPACITY, *self._shape), action.dtype)
        self._length = 0
        self._begins = [0] * num_envs

    def append(self, action: NDArray[Any]) -> NDArray[Any]:
        """Write down one action for each row; they come back by env and agent. Raises `EnvError` if they do not fit.

        What comes back is a view of the log: good until the next `append`.
        """
        if action.shape != self._flat_shape:
            raise EnvError(f"the actions have the shape {action.shape}, not {self._flat_shape}: one for each row")
        if self._length == len(self._entries):
            self._make_room()
        entry: NDArray[Any] = self._entries[self._length]
        np.copyto(entry, action.reshape(self._shape), casting="same_kind")
        self._length += 1
        return entry

    def begin(self, env: int) -> None:
        """An episode begins: what that env did before is forgotten, the entry of this step included."""
        self._begins[env] = self._length

    def num_actions(self, env: int) -> int:
        return self._length - self._begins[env]

    def actions(self, env: int) -> NDArray[Any]:
        """[steps, agents, ...] since the episode's beginning."""
        return self._entries[self._begins[env] : self._length, env]

    def clear(self) -> None:
        self._length = 0
        self._begins = [0] * len(self._begins)

    def save(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """How many actions each env has, and those of all envs one after the other."""
        envs = range(len(self._begins))
        lengths = np.asarray([self.num_actions(env) for env in envs], np.int64)
        return lengths, np.concatenate([self.actions(env) for env in envs])

    def restore(self, lengths: NDArray[np.int64], actions: NDArray[Any]) -> None:
        self._length = int(lengths.max(initial=0))
        self._entries = np.zeros((max(_CAPACITY, 2 * self._length), *self._shape), self._entries.dtype)
        self._begins = [self._length - int(length) for length in lengths]
        for env, part in enumerate(np.split(actions, np.cumsum(lengths)[:-1])):
            self._entries[self._begins[env] : self._length, env] = part

    def _make_room(self) -> None:
        """Forget what no env needs any more; if that is less than half, double the array."""
        oldest = min(self._begins)
        kept = self._entries[oldest : self._length]
        if 2 * len(kept) > len(self._entries):
            self._entries = np.zeros((2 * len(self._entries), *self._shape), self._entries.dtype)
            self._entries[: len(kept)] = kept
        else:
            self._entries[: len(kept)] = kept.copy()
        self._length = len(kept)
        self._begins = [begin - oldest for begin in self._begins]
