"""Logs: one file for each worker, and the last lines of one for those who must know why it died.

Lines look like `20:14:03.512 W policy/0 ludus.rpc: the message`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["log_process", "log_thread", "size", "tail"]

_MAX_TAIL_BYTES = 64 * 1024
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class _Format(logging.Formatter):
    def __init__(self, worker: str) -> None:
        super().__init__(f"%(asctime)s.%(msecs)03d %(levelname).1s {worker} %(name)s: %(message)s", datefmt="%H:%M:%S")


class _Output(io.TextIOWrapper):
    """A line-buffered stream to a descriptor. What a full disk does not take is lost, and nobody fails for it."""

    def __init__(self, fd: int) -> None:
        raw = open(fd, "wb", buffering=0, closefd=False)  # noqa: SIM115 - it lives as long as the process
        super().__init__(raw, encoding="utf-8", errors="replace", line_buffering=True, write_through=True)

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise


def log_process(worker: str, path: Path, *, level: int = logging.INFO) -> None:
    """Send everything this process says to `path`: log records, stdout, stderr, and what C libraries print."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    # Unbuffered in effect: the last words before a kill are the ones that are wanted.
    sys.stdout, sys.stderr = _Output(1), _Output(2)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Format(worker))
    logging.basicConfig(level=level, handlers=[handler], force=True)


@contextlib.contextmanager
def log_thread(worker: str, path: Path, *, level: int = logging.INFO) -> Iterator[None]:
    """While inside, log records made by this thread also go to `path`. What it prints goes where the process prints."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(_Format(worker))
    handler.setLevel(level)
    ident = threading.get_ident()
    handler.addFilter(lambda record: record.thread == ident)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def size(path: Path) -> int:
    """How many bytes a log has; 0 if there is no such file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def tail(path: Path, *, since: int = 0, num_lines: int = 20) -> list[str]:
    """The last lines of a log after its first `since` bytes; none if there is no such file."""
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(since, end - _MAX_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[-num_lines:]
