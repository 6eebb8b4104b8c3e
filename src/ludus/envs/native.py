"""`NativeVectorEnv`: a group that steps all its envs by itself, in NumPy or native code, behind our contract.

Such groups must begin the next episode in the step after the one that ended the last (next-step autoreset), as our
contract has it; what is left to do here is flags, dtypes, failures and counting.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from math import isfinite
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec, TimeStep, VectorEnvStats
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.envs import rows as arrays
from ludus.envs import seeds
from ludus.envs.failures import RAISED, Failures, expect_own
from ludus.envs.validation import Validator
from ludus.errors import EnvError

__all__ = ["Group", "NativeVectorEnv", "Outcome"]

Outcome: TypeAlias = tuple[Nest, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]
"""Observations, rewards, terminated, truncated."""

_FLOAT32 = np.dtype(np.float32)  # comparing a dtype with a dtype is ten times cheaper than with a type


class Group(Protocol):
    """What a library's vector environment must do. Observations may be in any dtype and order of memory."""

    def reset(self, seed: int) -> Nest: ...

    def send(self, action: NDArray[Any]) -> None: ...

    def recv(self) -> Outcome: ...

    def save(self) -> Nest:
        """`None` if the library does not tell."""
        ...

    def restore(self, saved: Nest) -> None: ...

    def close(self) -> None: ...


class NativeVectorEnv:
    """The envs of one group. If it raises, all of it is made again and every row has failed."""

    def __init__(self, spec: EnvSpec, num_envs: int, open_group: Callable[[], Group]) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self._open_group = open_group
        self._group: Group | None = open_group()
        self._now = arrays.allocate(spec, num_envs)
        self._spare = np.zeros(num_envs, np.bool_)  # `first` and what will be it take turns in two arrays
        self._done = np.zeros(num_envs, np.bool_)
        self._nobody = np.zeros(num_envs, np.bool_)
        self._ones = np.ones(num_envs, np.float32)
        self._own_obs = self._now.obs
        self._own_reward = self._now.reward
        self._failures = Failures(spec.name)
        self._validator = Validator(spec.obs)
        self._error: BaseException | None = None  # what `send` raised, kept for `recv`
        self._is_sent = False
        self._seed = 0
        self._num_restarts = 0
        self._in_a_row = 0
        self._steps_since = 0  # the group was made or made again
        self._num_steps = 0
        self._num_episodes = 0

    @property
    def num_rows(self) -> int:
        return self.num_envs

    def reset(self, seed: int) -> TimeStep:
        self._seed, self._num_restarts, self._in_a_row = int(seed), 0, 0
        self._error, self._is_sent = None, False
        try:
            return self._begin(self._opened.reset(self._group_seed), failed=False)
        except EnvError:
            raise
        except RAISED as error:
            expect_own(error)
            raise EnvError(
                f"{self.spec.name} cannot be reset with the seed {self._group_seed}: {type(error).__name__}: {error}"
            ) from error

    def send(self, action: NDArray[Any]) -> None:
        if self._is_sent or self._group is None:
            raise EnvError(f"{self.spec.name}: {'a step is under way' if self._is_sent else 'these envs are closed'}")
        if len(action) != self.num_envs:
            raise EnvError(f"{self.spec.name}: {len(action)} actions for {self.num_envs} rows")
        self._is_sent = True
        try:
            self._group.send(action)
        except RAISED as error:
            expect_own(error)
            self._error = error

    def recv(self) -> TimeStep:
        if not self._is_sent:
            raise EnvError(f"{self.spec.name}: there is nothing to `recv`; `send` an action first")
        self._is_sent = False
        if self._error is not None:
            return self._restart(self._error)
        group = self._opened
        try:
            obs, reward, terminated, truncated = group.recv()
        except RAISED as error:
            return self._restart(error)
        obs = self._tidy(obs)
        if reward.dtype != _FLOAT32:
            np.copyto(self._own_reward, reward, casting="unsafe")
            reward = self._own_reward
        if not isfinite(reward.dot(self._ones)) and (fault := self._validator.reward_fault(reward)):
            return self._restart(EnvError(fault))  # of observations a simulator tells, once for each segment
        first, done = self._done, self._spare
        np.logical_or(terminated, truncated, out=done)
        self._done, self._spare = done, first
        num_started = int(np.count_nonzero(first))
        self._num_steps += self.num_envs - num_started
        self._num_episodes += num_started
        self._steps_since += 1
        self._in_a_row = 0
        self._now = TimeStep(
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            first=first,
            active=np.logical_not(done, out=self._now.active),
            failed=self._nobody,
        )
        return self._now

    def step(self, action: NDArray[Any]) -> TimeStep:
        self.send(action)
        return self.recv()

    def save(self) -> Nest:
        group = None if self._is_sent else self._opened.save()
        if group is None:
            return None
        return {
            "group": group,
            "seed": self._seed,
            "num_restarts": self._num_restarts,
            "num_steps": self._num_steps,
            "num_episodes": self._num_episodes,
            "done": self._done.copy(),
            "now": arrays.to_nest(self._now),
        }

    def restore(self, saved: Nest) -> TimeStep:
        try:
            if len(saved["done"]) != self.num_envs:
                raise EnvError(f"{len(saved['done'])} envs of {self.spec.name} were saved, not {self.num_envs}")
            self._opened.restore(saved["group"])
            self._seed, self._num_restarts = saved["seed"], saved["num_restarts"]
            self._num_steps, self._num_episodes = saved["num_steps"], saved["num_episodes"]
            self._done = saved["done"].copy()
            self._now = arrays.allocate(self.spec, self.num_envs)
            arrays.copy_into(self._now, saved["now"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnvError(f"this was not saved by envs of {self.spec.name}: {error!r}") from error
        self._error, self._is_sent = None, False
        return self._now

    def statistics(self) -> VectorEnvStats:
        return VectorEnvStats(
            num_steps=self._num_steps,
            num_episodes=self._num_episodes + int(np.count_nonzero(self._done)),
            num_failures=self._failures.count,
            last_failure=self._failures.last,
        )

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.close()

    # --- beginnings

    @property
    def _opened(self) -> Group:
        if self._group is None:
            raise EnvError(f"these envs of {self.spec.name} are closed")
        return self._group

    @property
    def _group_seed(self) -> int:
        return seeds.derived(self._seed, self._num_restarts)

    def _begin(self, obs: Nest, *, failed: bool) -> TimeStep:
        self._steps_since = 0
        self._num_episodes += int(np.count_nonzero(self._done))
        self._done = np.zeros(self.num_envs, np.bool_)
        self._now = arrays.allocate(self.spec, self.num_envs)
        self._now.obs = self._tidy(obs)
        if fault := self._validator.obs_fault(nests.leaves(self._now.obs)):
            raise EnvError(fault)
        self._now.first[:] = True
        self._now.active[:] = True
        self._now.failed[:] = failed
        return self._now

    def _restart(self, error: BaseException) -> TimeStep:
        while True:
            self._error = None
            self._in_a_row += 1
            self._failures.note(
                error,
                which="the group",
                seed=self._group_seed,
                step=self._steps_since,
                in_a_row=self._in_a_row,
            )
            with contextlib.suppress(*RAISED):
                self.close()
            self._num_restarts += 1
            try:
                self._group = self._open_group()
                return self._begin(self._group.reset(self._group_seed), failed=True)
            except RAISED as again:
                error = again

    def _tidy(self, obs: Nest) -> Nest:
        """The observations as the spec has them: as they are if they fit, else written to arrays of our own."""
        if type(obs) is np.ndarray:
            own = self._own_obs
            if obs.dtype == own.dtype and obs.flags.c_contiguous:
                return obs
            np.copyto(own, obs, casting="unsafe")
            return own
        nests.map(_copy, self._own_obs, _plain(obs))
        return self._own_obs


def _copy(own: NDArray[Any], leaf: Any) -> None:
    np.copyto(own, leaf, casting="unsafe")


def _plain(obs: Nest) -> Nest:
    """Libraries give subclasses of `dict` and `tuple` as well."""
    if isinstance(obs, dict):
        return {key: _plain(child) for key, child in obs.items()}
    return tuple([_plain(child) for child in obs]) if isinstance(obs, tuple) else obs
