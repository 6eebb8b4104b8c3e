"""Ctrl-C and SIGTERM in a driver: the first unwinds the program that holds the run, a second hurries the end."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

__all__ = ["Interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """From `install` to `restore`, a signal raises `KeyboardInterrupt` or `SystemExit` in the main thread.

    So a `with` block is left in the usual way, which drains the run, and the exit code is the usual one. Once
    `is_draining` is set a further signal raises nothing but sets `is_hurried`. Who drains whatever is raised sets
    `drains_next`: then the first signal sets `is_draining` itself, and the second finds no moment in which it would
    be raised, too, and cut the draining off. Only the main thread can handle signals; elsewhere `install` does
    nothing. A signal that the process ignores stays ignored.
    """

    def __init__(self) -> None:
        self.drains_next = False
        self.is_draining = False
        self.is_hurried = False
        self._previous: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            previous = signal.getsignal(number)
            if previous is not signal.SIG_IGN and previous is not None:
                self._previous[number] = previous
                signal.signal(number, self._handle)

    def restore(self) -> None:
        """Put the former handlers back, unless somebody has set others since."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, previous)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_draining:
            self.is_hurried = True  # a plain attribute: taking a lock in a signal handler could wait for ever
            return
        self.is_draining = self.drains_next
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)
