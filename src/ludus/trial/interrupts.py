"""Ctrl-C, or another signal, while something is under way that must not be left half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["deferred_to"]


@contextlib.contextmanager
def deferred_to(ask: Callable[[], None], wanted: signal.Signals = signal.SIGINT) -> Iterator[None]:
    """Within the block the first Ctrl-C calls `ask`; a second raises `KeyboardInterrupt` at once.

    Of another signal that is `wanted`, the second does what it did before: SIGTERM ends the process.
    Only the main thread can handle signals; elsewhere, and where Ctrl-C is ignored, nothing is changed.
    """
    previous = signal.getsignal(wanted)
    if threading.current_thread() is not threading.main_thread() or previous in (signal.SIG_IGN, None):
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(wanted, previous)
        ask()

    signal.signal(wanted, handle)
    try:
        yield
    finally:
        signal.signal(wanted, previous)
