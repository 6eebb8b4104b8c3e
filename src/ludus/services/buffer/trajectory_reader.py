"""Reads items out of the columns of a store of trajectories: in its own process, or in another of the same host.

    reader = TrajectoryReader.open(folder)                        # columns that another process writes
    batch, is_whole = reader.transitions(keys, length=3, gamma=0.99)
    batch, is_whole = reader.sequences(keys, length=80)

An item whose entries were overwritten while they were read is not whole: draw another in its place. Results are in
arrays that are written to again by the `num_buffers`-th call after this one with as many keys.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.data.transitions import Transitions
from ludus.services.buffer.columns import Columns
from ludus.services.buffer.output_buffers import OutputBuffers
from ludus.services.buffer.trajectory_spec import ACTIVE, DONE, FIRST, TERMINATED, TRUNCATED, TrajectorySpec

__all__ = ["ENTRIES", "STATES", "TrajectoryReader"]

ENTRIES, STATES = "entries", "states"
"""Folders of the columns."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class TrajectoryReader:
    """Not safe to use from several threads at once. `num_buffers=0`: new arrays for each call."""

    def __init__(
        self, spec: TrajectorySpec, entries: Columns, states: Columns | None = None, *, num_buffers: int = 2
    ) -> None:
        self.spec = spec
        self._columns = entries.arrays
        self._num_slots = entries.num_slots
        self._states = states
        # Names of the columns; of each leaf that is None in the spec, None.
        named = iter(spec.obs_columns)
        leaves, self._structure = nests.flatten(spec.obs)
        self._obs: list[str | None] = [None if leaf is None else next(named) for leaf in leaves]
        self._stacks = {name for name, leaf in spec.obs_columns.items() if spec.is_stack(leaf)}
        obs = {name: ArraySpec(leaf.shape, leaf.dtype) for name, leaf in spec.obs_columns.items()}
        single = {name: leaf for name, leaf in spec.columns().items() if name in ("action", "mask")}
        double = {f"next/{name}": leaf for name, leaf in [*obs.items(), *single.items()] if name != "action"}
        self._of_transitions = OutputBuffers({**obs, **single, **double}, num_buffers)
        self._of_observations = OutputBuffers({**obs, **{k: v for k, v in single.items() if k == "mask"}}, num_buffers)
        self._of_steps = OutputBuffers({k: v for k, v in single.items() if k == "action"}, num_buffers)

    @classmethod
    def open(cls, folder: Path | str, *, num_buffers: int = 2) -> TrajectoryReader:
        """The store that another process has in this folder. Raises `DataError` if there is none, or a damaged one."""
        entries = Columns.open(Path(folder) / ENTRIES, readonly=True)
        spec = TrajectorySpec.from_json(entries.extra["spec"])
        states = Columns.open(Path(folder) / STATES, readonly=True) if spec.state is not None else None
        return cls(spec, entries, states, num_buffers=num_buffers)

    # -- transitions

    def transitions(
        self, keys: Ints, *, length: int, gamma: float, is_own: bool = False
    ) -> tuple[Transitions, Bools | None]:
        """Of items that start at these keys, each with the rewards of up to `length` steps; and which are whole.

        `is_own`: this process has the store and nobody writes to it now, so all are, and it is not asked.
        """
        columns, num_slots = self._columns, self._num_slots
        was_there = None if is_own else self._are_whole([keys])
        slots = keys % num_slots
        reward: NDArray[Any] = columns["reward"].take(slots)
        flags = columns["flags"].take(slots)
        following = columns["next"].take(slots)
        walked = [keys]
        if length == 1:
            discount = ((flags & TERMINATED) == 0) * np.float32(gamma)
        else:
            total, factor, at, steps = reward.astype(np.float64), 1.0, slots, np.ones(len(keys), np.int64)
            for _ in range(1, length):
                goes_on = (flags & DONE) == 0
                walked.append(np.where(goes_on, following, keys))
                at = np.where(goes_on, following % num_slots, at)
                factor *= gamma
                total += np.where(goes_on, columns["reward"].take(at), 0.0) * factor
                steps += goes_on
                flags = columns["flags"].take(at)
                following = columns["next"].take(at)
            reward = total.astype(np.float32)
            discount = (np.power(float(gamma), steps) * ((flags & TERMINATED) == 0)).astype(np.float32)
        walked.append(following)
        after = following % num_slots
        out = self._of_transitions.next(len(keys))
        frames = self._frames(keys, slots, walked)
        next_frames = self._frames(following, after, walked)
        batch = Transitions(
            obs=self._observations(slots, frames, out, ""),
            action=columns["action"].take(slots, 0, out=out["action"], mode="clip"),
            reward=reward,
            discount=discount,
            next_obs=self._observations(after, next_frames, out, "next/"),
            mask=columns["mask"].take(slots, 0, out=out["mask"], mode="clip") if self.spec.mask_size else None,
            next_mask=columns["mask"].take(after, 0, out=out["next/mask"], mode="clip")
            if self.spec.mask_size
            else None,
        )
        return batch, None if was_there is None else was_there & self._are_whole(walked)

    # -- sequences

    def sequences(self, keys: Ints, *, length: int, is_own: bool = False) -> tuple[Segment, Bools | None]:
        """Of items that start at these keys: `length` entries of each row, and the observation after them.

        Where an episode ends, the row's next one follows. What is not there yet is padding: `first`, not `active`.
        """
        columns, num_slots, num = self._columns, self._num_slots, len(keys)
        was_there = None if is_own else self._are_whole([keys])
        walk: Ints = np.empty((length + 1, num), np.int64)
        is_there: Bools = np.empty((length + 1, num), np.bool_)
        walk[0], is_there[0] = keys, True
        for step in range(length):
            following = columns["next"].take(walk[step] % num_slots)
            goes_on = is_there[step] & (following >= 0)
            is_there[step + 1] = goes_on
            walk[step + 1] = np.where(goes_on, following, walk[step])
        slots = walk % num_slots
        flags = columns["flags"].take(slots)
        acts = ((flags & ACTIVE) > 0) & is_there
        acts[:-1] &= is_there[1:]  # of the last one that is there nothing is known that came after it
        walked = [walk]
        out, steps = self._of_observations.next(length + 1, num), self._of_steps.next(length, num)
        frames = self._frames(walk, slots, walked)
        before = slots[:-1]
        counts = acts[:-1]
        state = None
        if self.spec.state is not None and self._states is not None:
            number = columns["state"].take(slots[0])
            state = self._read_states(number)
        segment = Segment(
            obs=self._observations(slots, frames, out, ""),
            first=((flags & FIRST) > 0) | ~is_there,
            active=acts,
            action=columns["action"].take(before, 0, out=steps["action"], mode="clip"),
            logp=columns["logp"].take(before) * counts if self.spec.has_logp else np.zeros((length, num), np.float32),
            reward=columns["reward"].take(before) * counts,
            terminated=((flags[:-1] & TERMINATED) > 0) & counts,
            truncated=((flags[:-1] & TRUNCATED) > 0) & counts,
            version=self._versions(before, counts, length),
            mask=columns["mask"].take(slots, 0, out=out["mask"], mode="clip") if self.spec.mask_size else None,
            state=state,
        )
        if was_there is None:
            return segment, None
        whole = was_there & self._are_whole(walked)
        if state is not None and self._states is not None:
            whole &= (number >= 0) & (self._states.arrays["owner"].take(number % self._states.num_slots) == keys)
        return segment, whole

    def _read_states(self, number: Ints) -> Nest:
        assert self._states is not None
        slots, arrays = number % self._states.num_slots, self._states.arrays
        named = iter([name for name in self._states.spec if name != "owner"])
        leaves, structure = nests.flatten(self.spec.state)
        return nests.unflatten(
            structure, [None if leaf is None else arrays[next(named)].take(slots, 0) for leaf in leaves]
        )

    def _versions(self, before: Ints, acts: Bools, length: int) -> Ints:
        """Of each step the oldest, so that the lag is never understated."""
        if not self.spec.has_version:
            return np.zeros(length, np.int64)
        latest = np.iinfo(np.int64).max
        versions = np.where(acts, self._columns["version"].take(before), latest).min(1, initial=latest)
        return np.where(versions == latest, 0, versions)

    # -- observations

    def has_frames(self, keys: Ints) -> Bools:
        """Whether the older frames of the observations at these keys are still there."""
        walked: list[Ints] = []
        self._frames(keys, keys % self._num_slots, walked)
        return self._are_whole(walked) if walked else np.ones(len(keys), np.bool_)

    def _frames(self, keys: Ints, slots: Ints, walked: list[Ints]) -> Ints | None:
        """The slots of all frames, the newest last, along a new last axis; keys walked over are added to `walked`."""
        if not self._stacks:
            return None
        frames = np.empty((*keys.shape, self.spec.frame_stack), np.int64)
        frames[..., -1] = slots
        at = slots
        for number in range(self.spec.frame_stack - 2, -1, -1):
            older = self._columns["prev"].take(at)
            walked.append(older)
            at = frames[..., number] = older % self._num_slots
        return frames

    def _observations(self, slots: Ints, frames: Ints | None, out: dict[str, NDArray[Any]], prefix: str) -> Nest:
        leaves: list[Any] = []
        for name in self._obs:
            if name is None:
                leaves.append(None)
                continue
            at = frames if frames is not None and name in self._stacks else slots
            leaves.append(self._columns[name].take(at, 0, out=out[prefix + name], mode="clip"))
        return leaves[0] if self._structure.kind is None else nests.unflatten(self._structure, leaves)

    def _are_whole(self, walked: list[Ints]) -> Bools:
        """Whether each item's entries are those that its walk was over: read last, so that nothing came in between."""
        whole: Bools | None = None
        own = self._columns["key"]
        for keys in walked:
            found = (own.take(keys % self._num_slots) == keys) & (keys >= 0)
            if found.ndim > 1:
                found = found.all(0)
            whole = found if whole is None else whole & found
        assert whole is not None
        return whole
