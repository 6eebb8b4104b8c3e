"""A lock between processes of one host: held through a file, let go by the kernel when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ludus import errors

__all__ = ["hold"]

_TICK_S = 0.002


@contextlib.contextmanager
def hold(path: Path, *, timeout_s: float = 60.0) -> Iterator[None]:
    """Hold the lock of `path`, a file that is made if need be and stays. Also excludes threads of one process.

    Raises `DeadlineExceeded` when another holds it for longer than `timeout_s`.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(fd, path, time.monotonic() + timeout_s)
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # closing it is not enough: a child that was forked meanwhile has it, too
        os.close(fd)


def _acquire(fd: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise errors.DeadlineExceeded(
                    f"another process has held {path} for too long; nothing was changed. Is it stopped?"
                ) from None
        time.sleep(_TICK_S)
