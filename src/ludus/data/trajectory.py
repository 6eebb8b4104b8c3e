"""One agent's episode, written step by step, read as segments of equal length.

    writer = TrajectoryWriter(num_steps=32, obs=spec.obs, action=spec.action)
    writer.see(obs)                          # the first observation, then, after each action, what it led to
    writer.act(action, logp, version)
    full = writer.see(obs, reward=1.0)       # a segment as soon as one is full, and every 32 steps
    last = writer.end(obs, reward=0.0, terminated=True)

A segment begins with the observation that the one before it ended with. The last one is filled up with steps that do
not count, so that segments of episodes of all lengths can be put into one batch.

A `RowWriter` writes one episode after another instead, as a simulator does with a row: no step of a segment is empty.
"""

from __future__ import annotations

from typing import Any

from ludus.data import nest as nests
from ludus.data.actions import ActionSpec
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.errors import DataError

__all__ = ["RowWriter", "TrajectoryWriter"]


class TrajectoryWriter:
    """For one episode. `state` is the spec of the policy's recurrent state, if it has one."""

    def __init__(
        self, *, num_steps: int, obs: Nest, action: ActionSpec, state: Nest = None, has_mask: bool = False
    ) -> None:
        self._num_steps = num_steps
        self._specs = {"obs": obs, "action": action, "state": state, "has_mask": has_mask}
        self._segment = self._allocate()
        self._step = 0
        self._has_started = False
        self._has_acted = False
        self.num_active = 0  # steps of the whole episode so far
        self.total_reward = 0.0

    @property
    def has_started(self) -> bool:
        """Whether an episode is under way."""
        return self._has_started

    def _allocate(self) -> Segment:
        return Segment.allocate(self._num_steps, 1, **self._specs)

    def see(self, obs: Nest, *, reward: float = 0.0, mask: Any = None, state: Nest = None) -> Segment | None:
        """What is seen now, and what the last action brought. Gives a segment if that was its last step."""
        full: Segment | None = None
        if self._has_acted:
            full = self._reward(obs, reward)
        elif self._has_started:
            raise DataError("an observation follows an action; nothing was done since the last one")
        segment, step = self._segment, self._step
        _put(segment.obs, step, obs)
        segment.first[step, 0] = not self._has_started
        segment.active[step, 0] = True
        if segment.mask is not None:
            segment.mask[step, 0] = True if mask is None else mask
        if step == 0 and segment.state is not None and state is not None:
            nests.map(lambda into, value: into.__setitem__(0, value), segment.state, state)
        self._has_started = True
        return full

    def act(self, action: Any, logp: float, version: int) -> None:
        """What was done at the last observation."""
        segment, step = self._segment, self._step
        segment.action[step, 0] = action
        segment.logp[step, 0] = logp
        segment.version[step:] = version
        self._has_acted = True
        self.num_active += 1

    def end(self, obs: Nest = None, *, reward: float = 0.0, terminated: bool) -> Segment | None:
        """The episode is over; without `terminated` it was cut off, and the value of `obs` counts.

        Without `obs` the last one that was seen stands for it: a game that vanished does not tell what came after.
        """
        segment = self._segment
        if not self._has_started or (self._step == 0 and not self._has_acted):
            return None
        if not self._has_acted:  # seen, but not acted on: the value of what was seen counts, if anything does
            step = self._step - 1
            segment.active[self._step, 0] = False
        else:
            step = self._step
            self._earn(reward)
            _put(segment.obs, step + 1, nests.map(lambda leaf: leaf[step, 0], segment.obs) if obs is None else obs)
        segment.terminated[step, 0] = terminated
        segment.truncated[step, 0] = not terminated
        if segment.mask is not None:
            segment.mask[step + 1 :, 0] = True
        for later in range(step + 2, self._num_steps + 1):
            _put(segment.obs, later, nests.map(lambda leaf: leaf[step + 1, 0], segment.obs))
        segment.first[step + 2 :, 0] = True
        self._has_started = False
        return segment

    def _reward(self, obs: Nest, reward: float) -> Segment | None:
        self._earn(reward)
        self._step += 1
        return self._complete(obs) if self._step == self._num_steps else None

    def _earn(self, reward: float) -> None:
        """What the last action brought."""
        self._segment.reward[self._step, 0] = reward
        self.total_reward += reward
        self._has_acted = False

    def _complete(self, obs: Nest) -> Segment:
        """The segment, which ends with this observation; the next one begins with it."""
        segment = self._segment
        _put(segment.obs, self._num_steps, obs)
        segment.active[self._num_steps, 0] = True
        if segment.mask is not None:
            segment.mask[self._num_steps, 0] = True
        self._segment, self._step = self._allocate(), 0
        return segment


class RowWriter(TrajectoryWriter):
    """For episodes that follow each other: `end` leaves the segment open, and the next `see` begins an episode there.

    `num_active` and `total_reward` are those of the present episode, or of the last one.
    """

    is_torn = False
    """The last episode ended where nothing could say so: what was given of it before looks as if it went on."""

    def see(self, obs: Nest, *, reward: float = 0.0, mask: Any = None, state: Nest = None) -> Segment | None:
        full: Segment | None = None
        if not self._has_started:
            self.num_active, self.total_reward, self.is_torn = 0, 0.0, False
            if self._step == self._num_steps:  # the last episode's final observation was the last but one
                full = self._complete(obs)
                full.first[self._num_steps, 0] = True
        return super().see(obs, reward=reward, mask=mask, state=state) or full

    def end(self, obs: Nest = None, *, reward: float = 0.0, terminated: bool) -> Segment | None:
        if not self._has_started:  # nothing was seen since the last end
            self.num_active, self.total_reward = 0, 0.0
            return None
        self._has_started = False
        segment, step = self._segment, self._step
        if self._has_acted:
            self._earn(reward)
            _put(segment.obs, step + 1, nests.map(lambda leaf: leaf[step, 0], segment.obs) if obs is None else obs)
        else:  # seen, but not acted on
            segment.active[step, 0] = False
            if step == 0 or not self.num_active:  # the next episode begins in its place
                self.is_torn = self.num_active > 0
                return None
            step -= 1
        segment.terminated[step, 0] = terminated
        segment.truncated[step, 0] = not terminated
        if segment.mask is not None:
            segment.mask[step + 1, 0] = True
        self._step = step + 2
        if self._step <= self._num_steps:
            return None
        self._segment, self._step = self._allocate(), 0
        return segment


def _put(into: Nest, step: int, value: Nest) -> None:
    nests.map(lambda array, leaf: array.__setitem__((step, 0), leaf), into, value)
