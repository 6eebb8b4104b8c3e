"""What an agent can do: the three kinds of action spaces, as plain data that travels without any library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ludus.data.spec import ArraySpec
from ludus.errors import SpecError

__all__ = ["ActionSpec", "Continuous", "Discrete", "MultiDiscrete"]


@dataclass(frozen=True)
class Discrete:
    """One of `num_choices`; an action is an int64 scalar from 0. A mask has one boolean for each choice."""

    num_choices: int

    def __post_init__(self) -> None:
        if self.num_choices < 1:
            raise SpecError(f"a discrete action with {self.num_choices} choices: at least 1 is needed")

    @property
    def array(self) -> ArraySpec:
        return ArraySpec((), np.int64, 0, self.num_choices - 1)

    @property
    def mask_size(self) -> int:
        return self.num_choices


@dataclass(frozen=True)
class MultiDiscrete:
    """Several discrete choices at once; an action is an int64 vector. A mask has the choices of all in a row."""

    num_choices: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.num_choices or min(self.num_choices) < 1:
            raise SpecError(f"a multi-discrete action with the choices {self.num_choices}: each needs at least 1")

    @property
    def array(self) -> ArraySpec:
        return ArraySpec((len(self.num_choices),), np.int64, 0, np.asarray(self.num_choices) - 1)

    @property
    def mask_size(self) -> int:
        return sum(self.num_choices)


@dataclass(frozen=True)
class Continuous:
    """A float32 vector of `size` within `low` and `high`, one bound for each entry; infinite where there is none."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if (
            not self.low
            or len(self.low) != len(self.high)
            or any(a >= b for a, b in zip(self.low, self.high, strict=False))
        ):
            raise SpecError(f"continuous actions between {self.low} and {self.high}: there must be room in each")

    @property
    def size(self) -> int:
        return len(self.low)

    @property
    def array(self) -> ArraySpec:
        return ArraySpec((self.size,), np.float32, self.low, self.high)

    @property
    def mask_size(self) -> int:
        return 0

    @property
    def is_bounded(self) -> bool:
        return bool(np.isfinite([*self.low, *self.high]).all())


ActionSpec: TypeAlias = Discrete | MultiDiscrete | Continuous
