"""A server's clock, as far as its answers tell."""

from __future__ import annotations

import email.utils
import time

__all__ = ["ServerClock"]


class ServerClock:
    """What time a server has, learnt from the `Date` of its answers, which is in whole seconds.

    Each answer gives bounds to how far the two clocks are apart; many answers together give narrow ones. This
    host's clock is believed as long as it lies within them, so hosts that are in step stay exactly in step,
    and one that is not is corrected.
    """

    def __init__(self) -> None:
        self._least = -float("inf")  # bounds of: server's time - this host's
        self._most = float("inf")

    def note(self, date: str | None, *, sent_at: float, received_at: float) -> None:
        """Learn from one answer: its `Date` header, and when (by `time.time`) it was asked for and had."""
        if date is None:
            return
        try:
            second = email.utils.parsedate_to_datetime(date).timestamp()
        except ValueError:
            return
        least, most = second - received_at, second + 1.0 - sent_at
        if least > self._most or most < self._least:  # one of the clocks was set
            self._least, self._most = least, most
        else:
            self._least, self._most = max(least, self._least), min(most, self._most)

    @property
    def offset_s(self) -> float:
        """What to add to this host's time to have the server's."""
        return min(max(0.0, self._least), self._most)

    def now(self) -> float:
        """The server's time, in seconds since 1970."""
        return time.time() + self.offset_s
