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
        steps, rows = np.nonzero(done)
        order = np.argsort(rows, kind="stable")  # by row, and then by step
        follows = np.zeros(len(rows), np.bool_)  # another episode that ended in the same row
        follows[1:] = rows[order][1:] == rows[order][:-1]
        totals, lengths = _since_the_one_before((steps, rows), order, follows, total, length)
        is_whole = np.ones(len(rows), np.bool_)
        is_whole[order] = follows | ~self._is_partial[rows[order]]
        ended = [
            Episode(each_total, each_length, row)
            for each_total, each_length, row, whole in zip(
                totals.tolist(), lengths.tolist(), rows.tolist(), is_whole.tolist(), strict=True
            )
            if whole
        ]
        self._is_partial[rows] = False
        last = np.full(len(self._total), -1)
        np.maximum.at(last, rows, steps)
        has_ended = np.flatnonzero(last >= 0)
        self._total, self._length = total[-1].copy(), length[-1].copy()
        self._total[has_ended] -= total[last[has_ended], has_ended]
        self._length[has_ended] -= length[last[has_ended], has_ended]
        self._total[void] = 0.0
        self._length[void] = 0
        self._is_partial |= void
        return ended

    def save(self) -> Nest:
        return {"total": self._total.copy(), "length": self._length.copy(), "is_partial": self._is_partial.copy()}

    def restore(self, saved: Nest) -> None:
        self._total, self._length = np.array(saved["total"]), np.array(saved["length"])
        self._is_partial = np.array(saved.get("is_partial", np.zeros(len(self._total), np.bool_)))  # in old checkpoints


def _since_the_one_before(
    where: tuple[NDArray[Any], NDArray[Any]], order: NDArray[Any], follows: NDArray[np.bool_], *sums: NDArray[Any]
) -> list[NDArray[Any]]:
    """Of running sums, what each episode has added; `follows`, in this order: there is one before it in its row."""
    added = []
    for each in sums:
        at_end = each[where][order]
        result = np.empty_like(at_end)
        result[order] = np.where(follows, at_end - np.roll(at_end, 1), at_end)
        added.append(result)
    return added
