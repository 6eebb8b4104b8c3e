"""Returns and lengths of the episodes that end within segments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.data.segment import Segment

__all__ = ["Episode", "EpisodeLog", "mark_void"]


@dataclass(frozen=True)
class Episode:
    """One agent's episode; `row` is where it was played."""

    total: float
    length: int
    row: int = field(default=0, compare=False)


def mark_void(segment: Segment, rows: NDArray[np.bool_]) -> None:
    """Their envs raised and were restarted: nothing is learnt from these rows, and a log forgets what they had.

    It is marked by an episode that begins twice in a row, at the first two entries: else none does.
    """
    segment.active[:, rows] = False
    segment.first[:2, rows] = True


class EpisodeLog:
    """Adds up, row by row, across the segments of one simulator.

    Of a row that is void (`mark_void`) all is forgotten; the episode that goes on from there is known in part only, so
    it is not counted either.
    """

    def __init__(self, num_rows: int) -> None:
        self._total: NDArray[Any] = np.zeros(num_rows, np.float64)
        self._length: NDArray[Any] = np.zeros(num_rows, np.int64)
        self._is_partial: NDArray[Any] = np.zeros(num_rows, np.bool_)

    def read(self, segment: Segment) -> list[Episode]:
        """The episodes that end in this segment, in the order of their ends."""
        void = segment.first[0] & segment.first[1]
        done = (segment.terminated | segment.truncated) & ~void
        total = self._total + np.cumsum(segment.reward, axis=0, dtype=np.float64)
        length = self._length + np.cumsum(segment.active[:-1], axis=0)
        ended: list[Episode] = []
        before_total: dict[int, float] = {}
        before_length: dict[int, int] = {}
        for step, row in zip(*np.nonzero(done), strict=True):
            if self._is_partial[row]:
                self._is_partial[row] = False
            else:
                ended.append(
                    Episode(
                        float(total[step, row] - before_total.get(row, 0.0)),
                        int(length[step, row] - before_length.get(row, 0)),
                        int(row),
                    )
                )
            before_total[row], before_length[row] = float(total[step, row]), int(length[step, row])
        self._total, self._length = total[-1], length[-1]
        for row, value in before_total.items():
            self._total[row] -= value
            self._length[row] -= before_length[row]
        self._total[void] = 0.0
        self._length[void] = 0
        self._is_partial |= void
        return ended

    def save(self) -> Nest:
        return {"total": self._total.copy(), "length": self._length.copy(), "is_partial": self._is_partial.copy()}

    def restore(self, saved: Nest) -> None:
        self._total, self._length = np.array(saved["total"]), np.array(saved["length"])
        self._is_partial = np.array(saved.get("is_partial", np.zeros(len(self._total), np.bool_)))  # in old checkpoints
