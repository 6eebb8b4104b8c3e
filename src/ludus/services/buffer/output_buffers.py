"""Arrays that samples are gathered into, used in turns: memory that was touched before has no page faults."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.services.buffer.columns import ColumnSpec

__all__ = ["OutputBuffers"]


_MAX_SHAPES = 8


class OutputBuffers:
    """`num_buffers` sets of arrays in rotation, for each size of a batch; 0: a new set each time."""

    def __init__(self, spec: Mapping[str, ColumnSpec], num_buffers: int) -> None:
        self._spec = dict(spec)
        self._num_buffers = num_buffers
        self._sets: dict[tuple[int, ...], deque[dict[str, NDArray[Any]]]] = {}

    def next(self, *leading: int) -> dict[str, NDArray[Any]]:
        """Arrays with these leading axes: those given `num_buffers` calls ago, of calls with the same axes."""
        if not self._num_buffers:
            return self._allocate(leading)
        sets = self._sets.get(leading)
        if sets is None:
            if len(self._sets) >= _MAX_SHAPES:  # sizes that keep changing: these arrays would never be used again
                self._sets.clear()
            sets = self._sets[leading] = deque()
        if len(sets) < self._num_buffers:
            sets.append(self._allocate(leading))
        else:
            sets.rotate(-1)
        return sets[-1]

    def _allocate(self, leading: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        return {name: np.empty((*leading, *leaf.shape), leaf.dtype) for name, leaf in self._spec.items()}
