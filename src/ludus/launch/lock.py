"""One driver for a trial: a lock that the kernel holds for a process and lets go when it dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from ludus import errors

__all__ = ["driving"]

_LOG = logging.getLogger(__name__)
_FILE = "driver.lock"
_held: set[int] = set()  # descriptors


@contextlib.contextmanager
def driving(folder: Path) -> Iterator[None]:
    """Be the one that drives the trial of this folder. Raises `ProgramError` at once if another process is."""
    file = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _held.add(file)
    try:
        _lock(file, folder)
        yield
    finally:
        if file in _held:  # a forked child has closed it already
            _held.remove(file)
            os.close(file)


def _lock(file: int, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise errors.ProgramError(
            f"trial {folder.name!r} is running: another process drives it. Wait for it, stop it (ludus ctl {folder} "
            "exit), or choose another name."
        ) from None
    except OSError as error:  # some network file systems have no locks
        _LOG.warning("%s cannot be locked (%s): nothing prevents a second run of this trial.", folder, error)


def _let_go() -> None:
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)  # a child that outlives a killed driver would hold its trial
