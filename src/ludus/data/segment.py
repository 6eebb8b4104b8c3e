"""A segment: T steps of R rows, as a simulator writes it and a trainer reads it.

Time runs along the first axis, rows along the second; a row is one agent of one env. What is seen has one entry more
than what is done, so that the value of what comes after the last action is known:

    obs[0] ─action[0]→ reward[0], terminated[0], truncated[0], obs[1] ─action[1]→ ... ─action[T-1]→ reward[T-1], obs[T]

An episode's final observation is an ordinary `obs`: it follows the step that ended the episode. There the agent cannot
act, so `active` is false; whatever action is written there was ignored. The next entry is `first` of a new episode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ludus.data import nest as nests
from ludus.data.actions import ActionSpec
from ludus.data.nest import Nest
from ludus.errors import DataError

__all__ = ["Segment"]


@dataclass(kw_only=True)
class Segment:
    """Arrays are NumPy's, or tensors inside a trainer; the comments say dtypes and axes."""

    obs: Nest  # [T + 1, R, ...]
    first: Any  # bool [T + 1, R] obs begins an episode: recurrent state is cleared before it
    active: Any  # bool [T + 1, R] the action taken here counts; false: learn nothing from this step
    action: Any  # [T, R, ...]
    logp: Any  # float32 [T, R] of the action under the policy that chose it
    reward: Any  # float32 [T, R]
    terminated: Any  # bool [T, R] the episode ended by the rules: there is nothing more to come
    truncated: Any  # bool [T, R] it was cut off: the value of the final observation counts
    version: Any  # int64 [T] of the weights that chose the actions
    mask: Any = None  # bool [T + 1, R, choices] which are allowed
    global_state: Nest = None  # [T + 1, W, ...] of the whole envs, for critics that may see them
    state: Nest = None  # [R, ...] recurrent state before obs[0]
    extra: Nest = None  # [T, R, ...] what a chooser knows besides the action: the visit counts of a search

    @classmethod
    def allocate(
        cls,
        num_steps: int,
        num_rows: int,
        *,
        obs: Nest,
        action: ActionSpec,
        global_state: Nest = None,
        num_envs: int = 0,
        state: Nest = None,
        has_mask: bool = False,
        extra: Nest = None,
    ) -> Segment:
        """Zeroed arrays. `obs`, `state` and `extra` are nests of `ArraySpec`s of one row, `global_state` of one env."""

        def zeros(spec: Nest, *leading: int) -> Nest:
            return nests.map(lambda leaf: None if leaf is None else leaf.allocate(leading), spec)

        done, seen = (num_steps, num_rows), (num_steps + 1, num_rows)
        return cls(
            obs=zeros(obs, *seen),
            first=np.zeros(seen, np.bool_),
            active=np.zeros(seen, np.bool_),
            action=action.array.allocate(done),
            logp=np.zeros(done, np.float32),
            reward=np.zeros(done, np.float32),
            terminated=np.zeros(done, np.bool_),
            truncated=np.zeros(done, np.bool_),
            version=np.zeros(num_steps, np.int64),
            mask=np.zeros((*seen, action.mask_size), np.bool_) if has_mask else None,
            global_state=zeros(global_state, num_steps + 1, num_envs),
            state=zeros(state, num_rows),
            extra=zeros(extra, *done),
        )

    @property
    def num_steps(self) -> int:
        return int(self.reward.shape[0])

    @property
    def num_rows(self) -> int:
        return int(self.reward.shape[1])

    @property
    def num_active(self) -> int:
        """How many of its steps count, over all rows: those in which an agent acted."""
        return int(self.active[:-1].sum())

    @property
    def ends(self) -> tuple[Any, Any, Any, Any]:
        """`terminated, truncated, active, first`: what `ludus.learn.ops` asks after rewards and values."""
        return self.terminated, self.truncated, self.active, self.first

    def num_env_steps(self, num_agents: int) -> int:
        """How many steps of envs it holds: a step counts once, however many of the env's agents acted in it."""
        if num_agents == 1:
            return self.num_active
        return int(self.active[:-1].reshape(self.num_steps, -1, num_agents).any(axis=2).sum())

    def to_nest(self) -> dict[str, Nest]:
        """For the codec; arrays are shared."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def from_nest(cls, nest: Nest) -> Segment:
        """Raises `DataError` unless the fields are a segment's and their leading axes agree."""
        try:
            segment = cls(**nest)
            steps, rows = segment.reward.shape
        except (TypeError, ValueError, AttributeError) as error:
            raise DataError(f"this is not a segment: {error}") from None
        for name, value in segment.to_nest().items():
            wanted: tuple[int, ...] = (steps + (name in ("obs", "first", "active", "mask")), rows)
            wanted = {"version": (steps,), "state": (rows,), "global_state": (steps + 1,)}.get(name, wanted)
            for leaf in nests.leaves(value):
                if leaf is not None and tuple(np.shape(leaf)[: len(wanted)]) != wanted:
                    raise DataError(f"a segment's {name} begins with {np.shape(leaf)}; it must be {wanted}")
        return segment

    @staticmethod
    def concat(segments: Sequence[Segment]) -> Segment:
        """One segment with the rows of all, which are of the same length. One alone is returned as it is."""
        if len(segments) == 1:
            return segments[0]
        if not segments:
            raise DataError("cannot concatenate zero segments: their fields are unknown")
        first = segments[0]
        if any(not np.array_equal(other.version, first.version) for other in segments):
            # rows of several versions: the oldest stands for all, so that the lag is never understated
            version = np.minimum.reduce([segment.version for segment in segments])
        else:
            version = first.version
        joined: dict[str, Any] = {
            name: None
            if value is None
            else nests.concat([getattr(s, name) for s in segments], axis=0 if name == "state" else 1)
            for name, value in first.to_nest().items()
            if name != "version"
        }
        return Segment(**joined, version=version)
