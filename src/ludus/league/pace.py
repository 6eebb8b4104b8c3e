"""What a process has done per second lately, by totals that only grow: where its time goes, how fast it is.

    pace = Pace()
    pace.note({"train": 1.5, "steps": 512.0})          # whenever some work is done
    pace.rates()                                       # per second, of the last ten seconds: {"train": 0.6, …}

A total of seconds has a share of the time as its rate.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

from ludus.clock import SYSTEM, Clock

__all__ = ["Pace"]

_NUM_MARKS = 20  # of a window: how exactly its beginning is kept


class Pace:
    """Rates are between what was noted at two times, so work that is under way does not count yet.

    `note` is for one thread, `rates` for any.
    """

    def __init__(self, *, window_s: float = 10.0, clock: Clock = SYSTEM) -> None:
        self._window_s = window_s
        self._clock = clock
        self._marks: collections.deque[tuple[float, Mapping[str, float]]] = collections.deque([(clock.now(), {})])

    def note(self, totals: Mapping[str, float]) -> None:
        now, marks = self._clock.now(), self._marks
        if len(marks) > 1 and now - marks[-2][0] < self._window_s / _NUM_MARKS:
            marks.pop()
        marks.append((now, dict(totals)))
        while len(marks) > 2 and now - marks[1][0] >= self._window_s:
            marks.popleft()

    def rates(self) -> dict[str, float]:
        """Nothing before the first note."""
        (began, first), (ended, last) = self._marks[0], self._marks[-1]
        elapsed = ended - began
        if elapsed <= 0.0:
            return {}
        return {name: (total - first.get(name, 0.0)) / elapsed for name, total in last.items()}
