"""`LoopWorlds`: single worlds played one after the other, with seeds that make every episode repeatable.

Episode `e` of world `w` begins with the seed `derived(seed, w, e)`. So a group is saved as the numbers of its episodes
and the actions since they began, and restored by playing those again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import TimeStep, WorldsStatistics
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.envs import rows as arrays
from ludus.envs import seeds
from ludus.envs.action_log import ActionLog
from ludus.envs.failures import RAISED, Failures, expect_own
from ludus.envs.soundness import Soundness
from ludus.envs.world import World
from ludus.errors import EnvError

__all__ = ["LoopWorlds"]


class LoopWorlds:
    """`num_worlds` copies of what `make` makes. The work is done in `send`; `recv` hands over its result."""

    def __init__(self, make: Callable[[], World], num_worlds: int) -> None:
        self._make = make
        self._worlds = [make()]
        self.spec = self._worlds[0].spec
        self.num_worlds = num_worlds
        try:
            self._worlds += [make() for _ in range(num_worlds - 1)]
        except BaseException:
            self.close()
            raise
        num_agents = len(self.spec.agents)
        self._now = arrays.allocate(self.spec, num_worlds)
        self._rows = [arrays.rows_of(self._now, world, num_agents) for world in range(num_worlds)]
        self._log = ActionLog(num_worlds, num_agents, self.spec.action.array)
        self._failures = Failures(self.spec.name)
        self._soundness = Soundness(self.spec.obs)
        self._seen = nests.leaves(self._now.obs)
        self._seen_by = [nests.leaves(rows.obs) for rows in self._rows]
        self._seed = 0
        self._episode = [0] * num_worlds
        self._is_over = [True] * num_worlds
        self._in_a_row = [0] * num_worlds  # failures without a good step between them
        self._failed_at = [-2] * num_worlds  # in which `send` it failed last
        self._num_sent = 0
        self._num_steps = 0
        self._num_episodes = 0
        self._is_sent = False

    @property
    def num_rows(self) -> int:
        return self.num_worlds * len(self.spec.agents)

    def reset(self, seed: int) -> TimeStep:
        self._seed = int(seed)
        self._is_sent = False
        self._clear()
        self._log.clear()
        for world in range(self.num_worlds):
            self._episode[world] = 0
            self._failed_at[world] = -2
            try:
                self._begin(world)
                self._expect_sound(world)
            except RAISED as error:
                expect_own(error)
                raise EnvError(
                    f"world {world} of {self.spec.name} cannot be reset with the seed {self._episode_seed(world)}: "
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
        for index, world in enumerate(self._worlds):
            try:
                if is_over[index]:
                    self._episode[index] += 1
                    self._begin(index)
                    continue
                if world.step(acts[index], rows[index]):
                    self._end(index)
                self._num_steps += 1
            except RAISED as error:
                self._begin_anew(index, error)
        if self._soundness.fault(self._seen, self._now.reward):
            self._begin_unsound_anew()
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
            if len(self._episode) != self.num_worlds:
                raise EnvError(f"{len(self._episode)} worlds of {self.spec.name} were saved, not {self.num_worlds}")
            self._clear()
            for world in range(self.num_worlds):
                self._replay(world)
            now = saved["now"]
            if self._is_over != saved["is_over"].tolist() or arrays.differs(self._now.obs, now["obs"]):
                raise EnvError(
                    f"{self.spec.name} was played again with the saved seeds and actions and did not come to the saved "
                    "observations: it is not deterministic, so it cannot go on exactly from there. Reset it instead"
                )
            arrays.copy_into(self._now, now)
            self._num_steps, self._num_episodes = saved["num_steps"], saved["num_episodes"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnvError(f"this was not saved by worlds of {self.spec.name}: {error!r}") from error
        self._is_sent = False
        return self._now

    def statistics(self) -> WorldsStatistics:
        return WorldsStatistics(
            num_steps=self._num_steps,
            num_episodes=self._num_episodes,
            num_failures=self._failures.count,
            last_failure=self._failures.last,
        )

    def close(self) -> None:
        worlds, self._worlds = self._worlds, []
        for world in worlds:
            with contextlib.suppress(*RAISED):  # one that broke may not close either; the others still do
                world.close()

    # --- one world

    def _begin(self, index: int) -> None:
        rows = self._rows[index]
        self._log.begin(index)
        self._worlds[index].reset(self._episode_seed(index), rows)
        rows.first[:] = True
        self._is_over[index] = False

    def _end(self, index: int) -> None:
        self._rows[index].active[:] = False
        self._is_over[index] = True
        self._num_episodes += 1

    def _fault(self, index: int) -> str:
        return self._soundness.fault(self._seen_by[index], self._rows[index].reward)

    def _expect_sound(self, index: int) -> None:
        if fault := self._fault(index):
            raise EnvError(fault)

    def _begin_unsound_anew(self) -> None:
        """Worlds that gave what cannot be learnt from have failed like those that raise."""
        for index, rows in enumerate(self._rows):
            if fault := self._fault(index):
                self._num_steps -= not rows.first.any()
                self._num_episodes -= self._is_over[index]
                self._begin_anew(index, EnvError(fault))

    def _begin_anew(self, index: int, error: BaseException) -> None:
        """Another world in the place of one that failed, tried until one begins or patience runs out."""
        rows = self._rows[index]
        if self._failed_at[index] < self._num_sent - 1:  # there was a good step since
            self._in_a_row[index] = 0
        self._failed_at[index] = self._num_sent
        while True:
            self._in_a_row[index] += 1
            self._failures.note(
                error,
                which=f"world {index}",
                seed=self._episode_seed(index),
                step=self._log.num_actions(index),
                in_a_row=self._in_a_row[index],
            )
            with contextlib.suppress(*RAISED):
                self._worlds[index].close()
            self._episode[index] += 1
            rows.reward[:] = 0.0
            try:
                self._worlds[index] = self._make()
                self._begin(index)
                self._expect_sound(index)
                break
            except RAISED as again:
                error = again
        rows.terminated[:] = False
        rows.truncated[:] = False
        rows.failed[:] = True

    def _replay(self, index: int) -> None:
        rows = self._rows[index]
        try:
            self._worlds[index].reset(self._episode_seed(index), rows)
            self._is_over[index] = False
            for action in self._log.actions(index):
                if self._is_over[index]:
                    break
                self._is_over[index] = self._worlds[index].step(action, rows)
        except RAISED as error:
            expect_own(error)
            raise EnvError(f"world {index} of {self.spec.name} raised when played again: {error!r}") from error

    def _episode_seed(self, index: int) -> int:
        return seeds.derived(self._seed, index, self._episode[index])

    def _clear(self) -> None:
        if not self._worlds:
            raise EnvError(f"these worlds of {self.spec.name} are closed")
        now = self._now
        now.reward.fill(0.0)
        now.terminated.fill(False)
        now.truncated.fill(False)
        now.first.fill(False)
        now.failed.fill(False)
