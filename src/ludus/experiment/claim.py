"""Who drives a trial: one process at a time, from before its first file until after its last.

The folder's `.lock` is held by the kernel for its holder, and let go by it when the holder dies, however it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from ludus import errors

__all__ = ["LOCK_FILE", "claimed"]

LOCK_FILE = ".lock"

_LOG = logging.getLogger(__name__)
_held: set[int] = set()  # descriptors


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Have a trial's folder to oneself. Raises `ProgramError` at once if another has it, a thread of ours included."""
    file = _open_locked(folder)
    _held.add(file)
    try:
        yield
    finally:
        if file in _held:  # a forked child has closed it already
            _held.remove(file)
            os.close(file)  # and with it the lock


def _open_locked(folder: Path) -> int:
    path = folder / LOCK_FILE
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (FileNotFoundError, FileExistsError):
            if folder.is_file():
                raise
            continue  # whoever had it could not begin, and took the folder away just now
        try:
            _lock(file, folder)
            if _is_still(file, path):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _lock(file: int, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise errors.ProgramError(
            f"trial {folder.name!r} is running: another process drives it. Wait for it, stop it, or choose another "
            "name."
        ) from None
    except OSError as error:  # some network file systems have no locks
        _LOG.warning("%s cannot be locked (%s): nothing hinders a second run of this trial.", folder, error)


def _is_still(file: int, path: Path) -> bool:
    """Whether the path leads to the file that was locked, or to another, made since."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _let_go() -> None:
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)  # a child that outlives a killed run would else hold its trial
