"""Returns and lengths of the episodes that end within segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.data.segment import Segment

__all__ = ["Episode", "EpisodeLog"]


@dataclass(frozen=True)
class Episode:
    """One agent's episode."""

    total: float
    length: int


class EpisodeLog:
    """Adds up, row by row, across the segments of one simulator.

    A row that was never active in a segment is void: its world raised and was begun anew, so what it had is forgotten.
    """

    def __init__(self, num_rows: int) -> None:
        self._total: NDArray[Any] = np.zeros(num_rows, np.float64)
        self._length: NDArray[Any] = np.zeros(num_rows, np.int64)

    def read(self, segment: Segment) -> list[Episode]:
        """The episodes that end in this segment, in the order of their ends."""
        void = ~segment.active.any(axis=0)
        done = (segment.terminated | segment.truncated) & ~void
        total = self._total + np.cumsum(segment.reward, axis=0, dtype=np.float64)
        length = self._length + np.cumsum(segment.active[:-1], axis=0)
        ended: list[Episode] = []
        before_total: dict[int, float] = {}
        before_length: dict[int, int] = {}
        for step, row in zip(*np.nonzero(done), strict=True):
            ended.append(
                Episode(
                    float(total[step, row] - before_total.get(row, 0.0)),
                    int(length[step, row] - before_length.get(row, 0)),
                )
            )
            before_total[row], before_length[row] = float(total[step, row]), int(length[step, row])
        self._total, self._length = total[-1], length[-1]
        for row, value in before_total.items():
            self._total[row] -= value
            self._length[row] -= before_length[row]
        self._total[void] = 0.0
        self._length[void] = 0
        return ended

    def save(self) -> Nest:
        return {"total": self._total.copy(), "length": self._length.copy()}

    def restore(self, saved: Nest) -> None:
        self._total, self._length = np.array(saved["total"]), np.array(saved["length"])
