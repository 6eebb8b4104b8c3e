"""The simulator: groups of envs, stepped by a policy; gives segments. Knows nothing of processes.

    simulator = Simulator(groups, InlineChooser(policy), num_steps=32, seed=1)
    rollout = simulator.collect(version=7)
    rollout.segment, rollout.episodes

A turn of a group has two halves: take what its envs did and ask for actions; take those and send them.
With inference elsewhere, one group's first half is followed by another's second: envs step while the answer is on its
way. With inference here, a group's envs, if they have threads of their own, step while another's are chosen for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import TimeStep, VectorEnv
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.data.segment import Segment
from ludus.envs.validation import Validator
from ludus.errors import EnvError
from ludus.services.simulator.chooser import Chooser
from ludus.services.simulator.episodes import Episode, EpisodeLog, mark_void

__all__ = ["Rollout", "Simulator", "SimulatorStats"]


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """What `collect` gives. The segment's arrays are used again after `num_slots - 1` further ones."""

    segment: Segment
    episodes: list[Episode]


@dataclass(frozen=True, kw_only=True)
class SimulatorStats:
    num_steps: int  # active ones
    num_segments: int
    num_dropped_rows: int  # rows of segments that are void because their env raised
    step_s: float  # stepping envs
    act_s: float  # choosing actions, or waiting for an inference service to


class Simulator:
    """`state_spec` is the policy's; `num_slots` segments are allocated and used in turn."""

    def __init__(
        self,
        groups: Sequence[VectorEnv],
        chooser: Chooser,
        *,
        num_steps: int,
        seed: int,
        state_spec: Nest = None,
        num_slots: int = 1,
    ) -> None:
        spec = groups[0].spec
        self.spec = spec
        self.num_rows = sum(vector_env.num_rows for vector_env in groups)
        self._chooser = chooser
        self._num_steps = num_steps
        self._seed = seed
        self._rng = np.random.default_rng([seed, 0x51AB])
        self._slots = [
            Segment.allocate(
                num_steps,
                self.num_rows,
                obs=spec.obs,
                action=spec.action,
                global_state=spec.global_state,
                num_envs=sum(vector_env.num_envs for vector_env in groups),
                state=state_spec,
                has_mask=spec.has_mask,
                extra=chooser.extra_spec,
            )
            for _ in range(num_slots)
        ]
        self._groups: list[_Group] = []
        row = env = 0
        for vector_env in groups:
            rows, places = slice(row, row + vector_env.num_rows), slice(env, env + vector_env.num_envs)
            state = nests.map(
                lambda leaf, n=vector_env.num_rows: None if leaf is None else leaf.allocate((n,)), state_spec
            )
            self._groups.append(_Group(vector_env, rows, places, state))
            row, env = rows.stop, places.stop
        self._log = EpisodeLog(self.num_rows)
        self._validator = Validator(spec.obs)  # vector envs of users do not validate everything
        self._has_started = False
        self._num_collected = self._num_active = self._num_dropped = 0
        self._step_s = self._act_s = 0.0

    def begin(self) -> None:
        """Start all episodes; `collect` does so by itself."""
        for number, group in enumerate(self._groups):
            group.now = group.vector_env.reset(int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0]))
        self._has_started = True

    def collect(self, version: int) -> Rollout:
        """The next segment, of `num_steps` steps of every row, by the weights of `version`."""
        if not self._has_started:
            self.begin()
        segment = self._slots[self._num_collected % len(self._slots)]
        segment.version[:] = version
        failed = np.zeros(self.num_rows, np.bool_)
        for group in self._groups:
            group.open(segment)
        offset = 1 if self._chooser.is_remote and len(self._groups) > 1 else 0
        turns = len(self._groups) * self._num_steps
        for turn in range(turns + offset):
            if turn < turns:
                step, number = divmod(turn, len(self._groups))
                self._look(self._groups[number], segment, step, failed)
            if turn >= offset:
                step, number = divmod(turn - offset, len(self._groups))
                self._act(self._groups[number], segment, step)
        for group in self._groups:
            self._look(group, segment, self._num_steps, failed)
        if fault := self._validator.fault(nests.leaves(segment.obs), segment.reward):
            raise EnvError(f"{self.spec.name} returned invalid values: {fault}. The run ends; fix the environment")
        if failed.any():
            mark_void(segment, failed)
            self._num_dropped += int(failed.sum())
        episodes = self._log.read(segment)
        self._num_collected += 1
        self._num_active += segment.num_active
        return Rollout(segment=segment, episodes=episodes)

    def _look(self, group: _Group, segment: Segment, step: int, failed: NDArray[np.bool_]) -> None:
        """First half: what the last action led to, and what is seen now."""
        began = time.perf_counter()
        if step > 0:
            now = group.now = group.vector_env.recv()
            segment.reward[step - 1, group.rows] = now.reward
            segment.terminated[step - 1, group.rows] = now.terminated
            segment.truncated[step - 1, group.rows] = now.truncated
            if now.failed.any():
                failed[group.rows] |= now.failed
        else:
            now = group.current
        _write(segment.obs, step, group.rows, now.obs)
        segment.first[step, group.rows] = now.first
        segment.active[step, group.rows] = now.active
        if segment.mask is not None:
            segment.mask[step, group.rows] = now.mask
        if segment.global_state is not None:
            _write(segment.global_state, step, group.places, now.global_state)
        ended = time.perf_counter()
        self._step_s += ended - began
        if step < self._num_steps:
            group.ticket = self._chooser.begin(now, group.state, group.rows)
            self._act_s += time.perf_counter() - ended

    def _act(self, group: _Group, segment: Segment, step: int) -> None:
        """Second half: choose, and let the envs go on."""
        began = time.perf_counter()
        acted = self._chooser.finish(group.ticket, self._rng)
        group.state = acted.state
        segment.action[step, group.rows] = acted.action
        segment.logp[step, group.rows] = acted.logp
        if segment.extra is not None:
            _write(segment.extra, step, group.rows, acted.extra)
        ended = time.perf_counter()
        self._act_s += ended - began
        group.vector_env.send(acted.action)
        self._step_s += time.perf_counter() - ended

    def statistics(self) -> SimulatorStats:
        return SimulatorStats(
            num_steps=self._num_active,
            num_segments=self._num_collected,
            num_dropped_rows=self._num_dropped,
            step_s=self._step_s,
            act_s=self._act_s,
        )

    def failures(self) -> tuple[int, str]:
        """How many envs raised, and the message of the last one."""
        stats = [group.vector_env.statistics() for group in self._groups]
        return sum(s.num_failures for s in stats), next((s.last_failure for s in stats if s.last_failure), "")

    def save(self) -> Nest:
        """Everything needed to go on exactly from here; `None` if the envs cannot tell. Between two `collect`s."""
        if not self._has_started:
            return None
        saved = [group.vector_env.save() for group in self._groups]
        if any(state is None for state in saved):
            return None
        return {
            "envs": saved,
            "state": [group.state for group in self._groups],
            "rng": save_rng(self._rng),
            "log": self._log.save(),
            "counts": [self._num_collected, self._num_active, self._num_dropped],
        }

    def restore(self, saved: Nest) -> None:
        """Go on where `save` was called, in a simulator made with the same arguments."""
        if len(saved["envs"]) != len(self._groups):
            raise EnvError(f"the checkpoint has {len(saved['envs'])} groups of envs, this run {len(self._groups)}.")
        for group, env_state, state in zip(self._groups, saved["envs"], saved["state"], strict=True):
            group.now = group.vector_env.restore(env_state)
            group.state = nests.map(lambda leaf: None if leaf is None else np.array(leaf), state)
        restore_rng(self._rng, saved["rng"])
        self._log.restore(saved["log"])
        self._num_collected, self._num_active, self._num_dropped = saved["counts"]
        self._has_started = True

    def close(self) -> None:
        for group in self._groups:
            group.vector_env.close()


class _Group:
    """Envs, and where they write in a segment."""

    def __init__(self, vector_env: VectorEnv, rows: slice, places: slice, state: Nest) -> None:
        self.vector_env = vector_env
        self.rows = rows
        self.places = places
        self.state = state
        self.now: TimeStep | None = None
        self.ticket: Any = None

    @property
    def current(self) -> TimeStep:
        assert self.now is not None
        return self.now

    def open(self, segment: Segment) -> None:
        if segment.state is not None:
            nests.map(lambda into, value: into.__setitem__(self.rows, value), segment.state, self.state)


def _write(into: Nest, step: int, rows: slice, value: Nest) -> None:
    if type(into) is np.ndarray:
        into[step, rows] = value
    else:
        nests.map(lambda array, leaf: array.__setitem__((step, rows), leaf), into, value)
