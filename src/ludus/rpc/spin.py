"""Spin a moment before sleeping.

Waking a sleeping thread on another core costs 30-100 µs on a virtual machine, as much as a small call takes. A waiter
whose recent waits were short therefore spins for up to `LOOK_S` before it sleeps. It yields the core every few
microseconds; it stops at once, and for `CROWDED_S`, when another process wanted the core; and each spin that finds
nothing makes the next less likely. An idle process never spins.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Spin"]

T = TypeVar("T")

LOOK_S = 300e-6
SHORT_S = 400e-6
CROWDED_S = 0.01
_YIELD_S = 200e-6  # an interrupt is shorter; another process that got the core is not
_MISSES = 3
_GLANCES = range(12)  # between two yields, a few microseconds
_LOW_PRICE = 2
_HIGH_PRICE = 1024


class Spin:
    """Decides for one waiter, by how its last waits went, whether to spin.

    A spin has a price, in short sleeps that must come first; it falls when spinning pays and rises when it does not.
    """

    __slots__ = ("_crowded_until", "_misses", "_price", "_shorts", "willing")

    def __init__(self) -> None:
        self.willing = False
        self._price = _LOW_PRICE
        self._shorts = 0
        self._misses = 0
        self._crowded_until = 0.0

    def look(self, glance: Callable[[], object], attempt: Callable[[], T] | None = None) -> object | T | None:
        """Spin: what `glance` or `attempt` found, if they found something true within `LOOK_S`.

        `glance` must cost no system call, or hardly any; `attempt` is made now and then.
        """
        clock = time.perf_counter
        now = clock()
        if now < self._crowded_until:
            return None
        end = now + LOOK_S
        while True:
            for _ in _GLANCES:
                found = glance()
                if found:
                    self._misses = 0
                    self._price = _LOW_PRICE
                    return found
            if attempt is not None:
                found = attempt()
                if found:
                    return self._hit(found)
            now = clock()
            if now > end:
                break
            os.sched_yield()
            if clock() - now > _YIELD_S:
                self._crowded_until = now + CROWDED_S
                return glance() or (attempt() if attempt is not None else None)
        self._misses += 1
        if self._misses >= _MISSES:
            self._misses = 0
            self._price = min(self._price * 4, _HIGH_PRICE)
            self.willing = False
        return None

    def _hit(self, found: T) -> T:
        self._misses = 0
        self._price = _LOW_PRICE
        return found

    def fall_asleep(self) -> float:
        return time.perf_counter()

    def woke(self, since: float) -> None:
        """Learn from a sleep that began at `since`."""
        if time.perf_counter() - since > SHORT_S:
            self.willing = False
            self._shorts = 0
        elif not self.willing:
            self._shorts += 1
            if self._shorts >= self._price:
                self._shorts = 0
                self.willing = True
