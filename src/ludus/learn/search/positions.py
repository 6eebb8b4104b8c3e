"""What a network has said of positions, for as long as its weights stay the same.

Games that are played side by side come to the same positions, and so do two orders of the same moves; and much of what
is looked at before one move is looked at again before the next. A position is at the place that its numbers lead to,
and the newest one there stays: nothing is searched for, and the memory is made once.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ludus.core import Rules
from ludus.learn.search import loops

__all__ = ["Column", "Positions"]

_MOST = 1 << 17  # places
_MOST_BYTES = 1 << 26


class Column:
    """One thing that is known of positions, of this shape."""

    def __init__(self, capacity: int, shape: tuple[int, ...]) -> None:
        self._values = np.empty((capacity, *shape), np.float32)
        self._written = np.zeros(capacity, np.int64)  # under which weights

    def read(self, place: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._values.take(place, axis=0)

    def is_written(self, place: NDArray[np.int64], weights: int) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self._written.take(place) == weights
        return found

    def write(self, place: NDArray[np.int64], values: NDArray[np.float32], weights: int) -> None:
        self._values[place] = values
        self._written[place] = weights

    def forget(self, place: NDArray[np.int64]) -> None:
        self._written[place] = 0


class Positions:
    """`value` of a position is for who is to move; `scores` are what `Trees.open` is given. One may be known alone."""

    def __init__(self, rules: Rules) -> None:
        size = math.prod(rules.state.shape)
        num_bytes = 8 * size + 8 * rules.num_actions + 24
        bits = min(_MOST, _MOST_BYTES // num_bytes).bit_length() - 1
        self._bits = bits
        self._factors = np.random.default_rng(0).integers(-(1 << 63), (1 << 63) - 1, size) | 1
        self._state = np.zeros((1 << bits, size), np.int64)
        self.value = Column(1 << bits, ())
        self.scores = Column(1 << bits, (2, rules.num_actions))
        self._first = np.zeros(1 << bits, np.int64)  # of a batch, which one has this place
        self._weights = 0
        self._fingerprint: int | None = None

    def of_weights(self, fingerprint: int) -> None:
        """Forget everything if these are other weights."""
        if fingerprint != self._fingerprint:
            self._fingerprint = fingerprint
            self._weights += 1

    def find(self, state: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The places of these, and which of them have them to themselves."""
        return loops.find(state.reshape(len(state), -1), self._factors, self._bits, self._state)

    def knows(self, column: Column, place: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Of which of these places, whosever they are, the column has something."""
        return column.is_written(place, self._weights)

    def claim(self, state: NDArray[np.int64], place: NDArray[np.int64]) -> None:
        """These positions take their places from others. Of two that have one place, the last has it."""
        self.value.forget(place)
        self.scores.forget(place)
        self._state[place] = state.reshape(len(state), -1)

    def write(self, column: Column, place: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        column.write(place, values, self._weights)

    def first_of_each(
        self, state: NDArray[np.int64], place: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which to evaluate, where some of a batch may be alike; and which of these each one is."""
        return loops.first_of_each(state.reshape(len(state), -1), place, self._first)
