"""Files that are only ever added to, by one process: a message is there whole or not at all, even on a full disk."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import ParamSpec

__all__ = ["Failures", "append"]

_LOG = logging.getLogger(__name__)
_TELL_EVERY_S = 30.0
_P = ParamSpec("_P")


def append(fd: int, message: bytes) -> None:
    """Write it at the end, whole. Raises `OSError`; then nothing of it is there."""
    written = os.write(fd, message)
    if written == len(message):
        return
    begin = os.fstat(fd).st_size - written
    try:
        while written < len(message):
            written += os.write(fd, message[written:])
    except OSError:
        os.ftruncate(fd, begin)
        raise


class Failures:
    """Counts what could not be written, and tells the log so once in a while."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._reported_at: float | None = None
        self.num = 0

    def add(self, error: Exception) -> None:
        self.num += 1
        now = time.monotonic()
        if self._reported_at is None or now - self._reported_at >= _TELL_EVERY_S:
            self._reported_at = now
            _LOG.error("%s (%d times by now); it goes on: %s: %s", self._what, self.num, type(error).__name__, error)

    def guard(self, function: Callable[_P, None]) -> Callable[_P, None]:
        """The same, but what it raises is counted here."""

        def guarded(*args: _P.args, **kwargs: _P.kwargs) -> None:
            try:
                function(*args, **kwargs)
            except Exception as error:
                self.add(error)

        return guarded
