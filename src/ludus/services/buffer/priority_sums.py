"""Weights of slots, and draws of slots in proportion to them.

    sums = PrioritySums(num_slots)
    sums.set(slots, weights)                    # a slot that is given twice has the last weight
    slots, probabilities = sums.draw(256, rng)  # with replacement; never one of weight 0

Slots are summed in blocks of 16, those in blocks of 16 again, until few are left. A draw is one cumulative sum over the
top, then one within the drawn block of each level; all draws of a call go down together. A block is summed again from
its parts whenever one of them changes, so no error adds up, however long it runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.errors import DataError

__all__ = ["PrioritySums"]

_SHIFT = 4
_BLOCK = 1 << _SHIFT
_MAX_TOP = 8192

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class PrioritySums:
    """One float64 weight for each slot, 0 at first."""

    def __init__(self, num_slots: int) -> None:
        size = -(-num_slots // _BLOCK)
        sizes = [size]
        while sizes[-1] > _MAX_TOP:
            sizes.append(-(-sizes[-1] // _BLOCK))
        # Each level but the top is a whole number of blocks: [blocks, 16]; the top is a flat array.
        self._levels: list[Floats] = [np.zeros((size, _BLOCK)) for size in sizes]
        self._flat: list[Floats] = [level.reshape(-1) for level in self._levels]
        self._top: Floats = np.zeros(sizes[-1])
        self._cumulative: Floats = np.zeros_like(self._top)
        self._before: Floats = np.zeros(sizes[-1])  # the sum of all blocks before each
        self._is_stale = False
        self._num_slots = num_slots

    @property
    def total(self) -> float:
        """The sum of all weights; more than 0 as soon as one is."""
        self._accumulate()
        return float(self._cumulative[-1])

    def weights(self, slots: Ints | slice) -> Floats:
        return self._flat[0][slots]

    def set(self, slots: Ints, weights: Floats | float) -> None:
        """Weights are finite and not negative: the caller has checked them."""
        at = slots
        self._flat[0][at] = weights
        for number, level in enumerate(self._levels):
            at = at >> _SHIFT
            sums = np.add.reduce(level.take(at, 0), 1)
            if number + 1 < len(self._levels):
                self._flat[number + 1][at] = sums
            else:
                self._top[at] = sums
        self._is_stale = True

    def set_all(self, weights: Floats) -> None:
        """The weight of every slot. The sums are those that `set` would have led to, bit for bit."""
        if weights.shape != (self._num_slots,):
            raise DataError(f"{weights.shape} weights for {self._num_slots} slots; nothing was set")
        self._flat[0][: self._num_slots] = weights
        blocks = np.arange(len(self._levels[0]), dtype=np.int64)
        for start in range(0, len(blocks), 4096):
            at = blocks[start : start + 4096] * _BLOCK
            self.set(at, self._flat[0][at])

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """`n` slots and the probability of each. Raises `DataError` while all weights are 0."""
        self._accumulate()
        total = self._cumulative[-1]
        if not total > 0:
            raise DataError("all priorities are 0, so nothing can be drawn; give some item a priority above 0")
        left = rng.random(n)
        left *= np.nextafter(total, 0.0)  # rounded up to the total itself, it would be past the last slot
        at = self._cumulative.searchsorted(left, "right")
        left -= self._before.take(at)
        for number in range(len(self._levels) - 1, -1, -1):
            parts = self._levels[number].take(at, 0)
            cumulative = np.add.accumulate(parts, 1)
            # Rounding may leave more than the block has: then its last part above 0 is meant.
            np.minimum(left, np.nextafter(cumulative[:, -1], 0.0), out=left)
            inside = (cumulative > left[:, None]).argmax(1)
            at <<= _SHIFT
            at += inside
            if number:
                inside += np.arange(0, n * _BLOCK, _BLOCK)
                left -= cumulative.take(inside)
                left += parts.take(inside)
                np.maximum(left, 0.0, out=left)
        probabilities = self._flat[0].take(at)
        probabilities /= total
        return at, probabilities

    def _accumulate(self) -> None:
        if self._is_stale:
            np.add.accumulate(self._top, out=self._cumulative)
            self._before[1:] = self._cumulative[:-1]
            self._is_stale = False
