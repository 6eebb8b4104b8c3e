"""`LoopVectorEnv`: single envs played one after the other, with seeds that make every episode repeatable.

Episode `e` of env `w` begins with the seed `derived(seed, w, e)`. So a group is saved as the numbers of its episodes
and the actions since they began, and restored by playing those again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import TimeStep, VectorEnvStats
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.envs import rows as arrays
from ludus.envs import seeds
from ludus.envs.action_log import ActionLog
from ludus.envs.failures import RAISED, Failures, expect_own
from ludus.envs.single_env import SingleEnv
from ludus.envs.validation import Validator
from ludus.errors import EnvError

__all__ = ["LoopVectorEnv"]


class LoopVectorEnv:
    """`num_envs` copies of what `make` makes. The work is done in `send`; `recv` hands over its result."""

    def __init__(self, make: Callable[[], SingleEnv], num_envs: int) -> None:
        self._make = make
        self._envs = [make()]
        self.spec = self._envs[0].spec
        self.num_envs = num_envs
        try:
            self._envs += [make() for _ in range(num_envs - 1)]
        except BaseException:
            self.close()
            raise
        num_agents = len(self.spec.agents)
        self._now = arrays.allocate(self.spec, num_envs)
        self._rows = [arrays.rows_of(self._now, env, num_agents) for env in range(num_envs)]
        self._log = ActionLog(num_envs, num_agents, self.spec.action.array)
        self._failures = Failures(self.spec.name)
        self._validator = Validator(self.spec.obs)
        self._seen = nests.leaves(self._now.obs)
        self._seen_by = [nests.leaves(rows.obs) for rows in self._rows]
        self._seed = 0
        self._episode = [0] * num_envs
        self._is_over = [True] * num_envs
        self._in_a_row = [0] * num_envs  # failures without a good step between them
        self._failed_at = [-2] * num_envs  # in which `send` it failed last
        self._num_sent = 0
        self._num_steps = 0
        self._num_episodes = 0
        self._is_sent = False

    @property
    def num_rows(self) -> int:
        return self.num_envs * len(self.spec.agents)

    def reset(self, seed: int) -> TimeStep:
        self._seed = int(seed)
        self._is_sent = False
        self._clear()
        self._log.clear()
        for env in range(self.num_envs):
            self._episode[env] = 0
            self._failed_at[env] = -2
            try:
                self._begin(env)
                self._expect_valid(env)
            except RAISED as error:
                expect_own(error)
                raise EnvError(
                    f"env {env} of {self.spec.name} cannot be reset with the seed {self._episode_seed(env)}: "
                    f"{type(error).__name__}: {error}"
                ) from error
        return self._now

    def send(self, action: NDArray[Any]) -> None:
        if self._is_sent:
            raise EnvError(f"{self.spec.name}: a step is under way; `recv` comes before the next `send`")
        acts = self._log.append(action)
        self._clear()
        self._num_sent += 1
        is_over, rows = self._is_over, self._rows
        for index, env in enumerate(self._envs):
            try:
                if is_over[index]:
                    self._episode[index] += 1
                    self._begin(index)
                    continue
                if env.step(acts[index], rows[index]):
                    self._end(index)
                self._num_steps += 1
            except RAISED as error:
                self._restart(index, error)
        if self._validator.fault(self._seen, self._now.reward):
            self._restart_invalid()
        self._is_sent = True

    def recv(self) -> TimeStep:
        if not self._is_sent:
            raise EnvError(f"{self.spec.name}: there is nothing to `recv`; `send` an action first")
        self._is_sent = False
        return self._now

    def step(self, action: NDArray[Any]) -> TimeStep:
        self.send(action)
        return self.recv()

    def save(self) -> Nest:
        if self._is_sent:
            raise EnvError(f"{self.spec.name} cannot be saved in the midst of a step; `recv` it first")
        lengths, actions = self._log.save()
        return {
            "seed": self._seed,
            "episode": np.asarray(self._episode, np.int64),
            "is_over": np.asarray(self._is_over, np.bool_),
            "num_actions": lengths,
            "actions": actions,
            "num_steps": self._num_steps,
            "num_episodes": self._num_episodes,
            "now": arrays.to_nest(self._now),
        }

    def restore(self, saved: Nest) -> TimeStep:
        try:
            self._seed = saved["seed"]
            self._episode = saved["episode"].tolist()
            self._log.restore(saved["num_actions"], saved["actions"])
            if len(self._episode) != self.num_envs:
                raise EnvError(f"{len(self._episode)} envs of {self.spec.name} were saved, not {self.num_envs}")
            self._clear()
            for env in range(self.num_envs):
                self._replay(env)
            now = saved["now"]
            if self._is_over != saved["is_over"].tolist() or arrays.differs(self._now.obs, now["obs"]):
                raise EnvError(
                    f"{self.spec.name} was played again with the saved seeds and actions and did not come to the saved "
                    "observations: it is not deterministic, so it cannot go on exactly from there. Reset it instead"
                )
            arrays.copy_into(self._now, now)
            self._num_steps, self._num_episodes = saved["num_steps"], saved["num_episodes"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnvError(f"this was not saved by envs of {self.spec.name}: {error!r}") from error
        self._is_sent = False
        return self._now

    def statistics(self) -> VectorEnvStats:
        return VectorEnvStats(
            num_steps=self._num_steps,
            num_episodes=self._num_episodes,
            num_failures=self._failures.count,
            last_failure=self._failures.last,
        )

    def close(self) -> None:
        envs, self._envs = self._envs, []
        for env in envs:
            with contextlib.suppress(*RAISED):  # one that broke may not close either; the others still do
                env.close()

    # --- one env

    def _begin(self, index: int) -> None:
        rows = self._rows[index]
        self._log.begin(index)
        self._envs[index].reset(self._episode_seed(index), rows)
        rows.first[:] = True
        self._is_over[index] = False

    def _end(self, index: int) -> None:
        self._rows[index].active[:] = False
        self._is_over[index] = True
        self._num_episodes += 1

    def _fault(self, index: int) -> str:
        return self._validator.fault(self._seen_by[index], self._rows[index].reward)

    def _expect_valid(self, index: int) -> None:
        if fault := self._fault(index):
            raise EnvError(fault)

    def _restart_invalid(self) -> None:
        """Envs that gave what cannot be learnt from have failed like those that raise."""
        for index, rows in enumerate(self._rows):
            if fault := self._fault(index):
                self._num_steps -= not rows.first.any()
                self._num_episodes -= self._is_over[index]
                self._restart(index, EnvError(fault))

    def _restart(self, index: int, error: BaseException) -> None:
        """Another env in the place of one that failed, tried until one begins or patience runs out."""
        rows = self._rows[index]
        if self._failed_at[index] < self._num_sent - 1:  # there was a good step since
            self._in_a_row[index] = 0
        self._failed_at[index] = self._num_sent
        while True:
            self._in_a_row[index] += 1
            self._failures.note(
                error,
                which=f"env {index}",
                seed=self._episode_seed(index),
                step=self._log.num_actions(index),
                in_a_row=self._in_a_row[index],
            )
            with contextlib.suppress(*RAISED):
                self._envs[index].close()
            self._episode[index] += 1
            rows.reward[:] = 0.0
            try:
                self._envs[index] = self._make()
                self._begin(index)
                self._expect_valid(index)
                break
            except RAISED as again:
                error = again
        rows.terminated[:] = False
        rows.truncated[:] = False
        rows.failed[:] = True

    def _replay(self, index: int) -> None:
        rows = self._rows[index]
        try:
            self._envs[index].reset(self._episode_seed(index), rows)
            self._is_over[index] = False
            for action in self._log.actions(index):
                if self._is_over[index]:
                    break
                self._is_over[index] = self._envs[index].step(action, rows)
        except RAISED as error:
            expect_own(error)
            raise EnvError(f"env {index} of {self.spec.name} raised when played again: {error!r}") from error

    def _episode_seed(self, index: int) -> int:
        return seeds.derived(self._seed, index, self._episode[index])

    def _clear(self) -> None:
        if not self._envs:
            raise EnvError(f"these envs of {self.spec.name} are closed")
        now = self._now
        now.reward.fill(0.0)
        now.terminated.fill(False)
        now.truncated.fill(False)
        now.first.fill(False)
        now.failed.fill(False)
