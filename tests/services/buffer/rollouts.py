"""Random rows of episodes, cut into segments, and what a plain reader makes of them one step at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.services.simulator.episodes import mark_void


@dataclass
class Step:
    """One observation of a row, and what was done there."""

    obs: NDArray[Any]
    first: bool = False
    active: bool = False
    action: int = 0
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False

    @property
    def id(self) -> float:
        return float(np.ravel(self.obs)[-1])


@dataclass
class Row:
    """A row of time, without end. `stack`: observations are the last frames, else one number."""

    rng: np.random.Generator
    stack: int
    waits: float
    torn: float
    ids: Iterator[int]  # no frame is like another
    steps: list[Step] = field(default_factory=list)

    def extend(self, num: int) -> None:
        while len(self.steps) < num:
            self._play()

    def _play(self) -> None:
        rng, length = self.rng, int(self.rng.integers(1, 9))
        frames = [self._frame() for _ in range(self.stack - 1)]
        ends_torn = rng.random() < self.torn
        for number in range(length + (0 if ends_torn else 1)):
            frames.append(self._frame())
            step = Step(obs=np.array(frames[-self.stack :], np.float32).reshape(-1, 1), first=number == 0)
            if self.stack == 1:
                step.obs = step.obs[0]
            if number < length:
                step.active = rng.random() >= self.waits
                step.action = int(rng.integers(0, 5))
                step.reward = float(rng.integers(-8, 9)) / 4
            if number == length - 1 and not ends_torn:
                step.terminated = bool(rng.random() < 0.5)
                step.truncated = not step.terminated
            self.steps.append(step)

    def _frame(self) -> float:
        return float(next(self.ids))


def make_segments(
    seed: int,
    *,
    num_segments: int,
    num_steps: int,
    num_rows: int,
    stack: int = 1,
    waits: float = 0.0,
    torn: float = 0.0,
    void: float = 0.0,
) -> tuple[list[Segment], list[list[list[Step]]]]:
    """Segments of one stream; and, for each row, the stretches of steps that are known of it.

    The last step of a stretch is the observation after its last action.
    """
    rng = np.random.default_rng(seed)
    ids = itertools.count(1 + 1_000_000 * (seed % 16))
    rows = [Row(rng, stack, waits, torn, ids) for _ in range(num_rows)]
    shape = (1,) if stack == 1 else (stack, 1)
    segments = []
    stretches: list[list[list[Step]]] = [[] for _ in rows]
    is_open = [False] * num_rows
    for number in range(num_segments):
        segment = Segment.allocate(num_steps, num_rows, obs=ArraySpec(shape, np.float32), action=Discrete(5))
        segment.version[:] = number
        for index, row in enumerate(rows):
            start = number * num_steps
            row.extend(start + num_steps + 1)
            for at in range(num_steps + 1):
                step = row.steps[start + at]
                segment.obs[at, index], segment.first[at, index] = step.obs, step.first
                segment.active[at, index] = step.active
                if at < num_steps:
                    segment.action[at, index], segment.reward[at, index] = step.action, step.reward
                    segment.terminated[at, index], segment.truncated[at, index] = step.terminated, step.truncated
            steps = row.steps[start : start + num_steps + 1]
            if rng.random() < void or (steps[0].first and steps[1].first):  # what looks void is
                mark_void(segment, np.arange(num_rows) == index)
                is_open[index] = False
            elif is_open[index]:
                stretches[index][-1] += steps[1:]
            else:
                stretches[index].append(list(steps))
                is_open[index] = True
        segments.append(segment)
    return segments, stretches


def chains(stretch: list[Step]) -> list[list[Step]]:
    """The steps that count, in lists that are unbroken: without waiting, whose rewards go to the last action."""
    found: list[list[Step]] = [[]]
    acted: Step | None = None  # the last action of the present episode
    is_first = False
    for number, step in enumerate(stretch):
        if step.first:
            if acted is not None:  # the last episode was torn
                found.append([])
            acted, is_first = None, True
        is_end = number + 1 == len(stretch)
        is_ended = number > 0 and (stretch[number - 1].terminated or stretch[number - 1].truncated)
        is_cut = not is_end and not step.active and not step.first and stretch[number + 1].first
        is_cut = is_cut and not (step.terminated or step.truncated)
        if (is_ended and not step.first) or is_cut:
            if acted is not None:
                acted.truncated |= not acted.terminated  # it has a final observation, and nobody ended it
                found[-1].append(Step(obs=step.obs))
            acted = None
        elif is_end:
            continue  # what is done there is not known yet
        elif step.active:
            acted = Step(**{**step.__dict__, "first": is_first})
            is_first = False
            found[-1].append(acted)
        elif acted is not None:
            acted.reward += step.reward
            acted.terminated |= step.terminated
            acted.truncated |= step.truncated
    return [chain for chain in found if chain]


def transitions(chain: list[Step], length: int, gamma: float) -> dict[float, tuple[Any, ...]]:
    """By the id of the observation: action, discounted rewards, discount, the next observation. Complete ones."""
    found = {}
    for start, step in enumerate(chain):
        if not step.active:
            continue
        total = 0.0
        for number in range(length):
            if start + number + 1 >= len(chain):
                break
            now = chain[start + number]
            total += gamma**number * now.reward
            if now.terminated or now.truncated or number == length - 1:
                discount = 0.0 if now.terminated else gamma ** (number + 1)
                found[step.id] = (step.action, total, discount, chain[start + number + 1].obs)
                break
    return found


def sequences(chain: list[Step], length: int) -> dict[float, list[Step]]:
    """By the id of the first observation: `length + 1` steps, with padding where nothing follows. Complete ones."""
    found = {}
    for start, step in enumerate(chain):
        if not step.active:
            continue
        rest = chain[start:]
        ends = any(each.terminated or each.truncated for each in rest)
        if len(rest) <= length and not ends:
            continue
        taken = [Step(**each.__dict__) for each in rest[: length + 1]]
        if len(taken) <= length:
            last = taken[-1]
            taken[-1] = Step(obs=last.obs, first=last.first)
            taken += [Step(obs=last.obs, first=True) for _ in range(length + 1 - len(taken))]
        found[step.id] = taken
    return found
