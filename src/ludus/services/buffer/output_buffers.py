"""Arrays that samples are gathered into, used in turns: memory that was touched before has no page faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.services.buffer.columns import ColumnSpec

__all__ = ["OutputBuffers"]


class OutputBuffers:
    """`num_buffers` sets of arrays in rotation; 0: a new set each time."""

    def __init__(self, spec: Mapping[str, ColumnSpec], num_buffers: int) -> None:
        self._spec = dict(spec)
        self._sets: list[dict[str, NDArray[Any]]] = [{} for _ in range(num_buffers)]
        self._leading: list[tuple[int, ...] | None] = [None] * num_buffers
        self._turn = 0

    def next(self, *leading: int) -> dict[str, NDArray[Any]]:
        """Arrays with these leading axes; those given `num_buffers` calls ago, if they had as many rows."""
        if not self._sets:
            return self._allocate(leading)
        turn = self._turn
        self._turn = (turn + 1) % len(self._sets)
        if self._leading[turn] != leading:
            self._sets[turn], self._leading[turn] = self._allocate(leading), leading
        return self._sets[turn]

    def _allocate(self, leading: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        return {name: np.empty((*leading, *leaf.shape), leaf.dtype) for name, leaf in self._spec.items()}
