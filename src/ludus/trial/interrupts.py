"""Ctrl-C while something is under way that must not be left half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["deferred_to"]


@contextlib.contextmanager
def deferred_to(ask: Callable[[], None]) -> Iterator[None]:
    """Within the block the first Ctrl-C calls `ask`; a second raises `KeyboardInterrupt` at once.

    Only the main thread can handle signals; elsewhere, and where Ctrl-C is ignored, nothing is changed.
    """
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous in (signal.SIG_IGN, None):
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        ask()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
