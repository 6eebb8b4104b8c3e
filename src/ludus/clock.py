"""Time as a thing one can hold: the real clock, and a hand-wound one for tests."""

from __future__ import annotations

import threading
import time
from typing import Protocol

__all__ = ["SYSTEM", "Clock", "FakeClock", "SystemClock"]


class Clock(Protocol):
    """What code that waits is written against."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait for `event`, at most `timeout_s`; says whether it is set."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(timeout_s)


class FakeClock:
    """A clock that moves only when asked to: `advance`, or a `wait`, which passes its whole timeout at once."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        if not event.is_set():
            self.advance(timeout_s)
        return event.is_set()


SYSTEM: Clock = SystemClock()
