"""Where the columns of a replay service are: a folder of shared memory, private to it, or one on disk.

    folder = ColumnFolder.make(num_bytes, otherwise=trial_folder)   # /dev/shm/ludus-1000/4be0…, or on disk
    folder.close()                                                  # removes it
    remove_abandoned()                                              # those of killed processes

A process holds the lock of its folder for as long as it lives, so whose lock is free is dead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import uuid
from pathlib import Path

from ludus import errors, files

__all__ = ["SHARED_MEMORY", "ColumnFolder", "remove_abandoned"]

_LOG = logging.getLogger(__name__)
SHARED_MEMORY = Path("/dev/shm")
_SPARE = 1.1
_LOCK = "lock"


class ColumnFolder:
    """`path` until `close`. `is_private`: it was made for this process, and `close` removes it."""

    def __init__(self, path: Path, *, is_private: bool, held: contextlib.ExitStack) -> None:
        self.path = path
        self.is_private = is_private
        self._held = held

    @classmethod
    def make(
        cls, num_bytes: int, *, otherwise: Path | None = None, shared_memory: Path = SHARED_MEMORY
    ) -> ColumnFolder:
        """A new one in shared memory if there is room, else under `otherwise` (a temporary folder if there is none)."""
        root = shared_memory / f"ludus-{os.getuid()}"
        remove_abandoned(shared_memory)
        if not _has_room(shared_memory, num_bytes):
            root = (otherwise or Path(tempfile.gettempdir()) / f"ludus-{os.getuid()}") / "replay"
            _LOG.warning(
                "%s has no room for %.0f MB, so replay is kept in %s, which may be slower.",
                shared_memory,
                num_bytes / 1e6,
                root,
            )
            _remove_abandoned_in(root)
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = uuid.uuid4().hex
        new, path = root / f".{number}", root / number
        new.mkdir(mode=0o700)
        held = contextlib.ExitStack()
        held.enter_context(files.hold(new / _LOCK, refusal=f"{new} is another's"))
        os.rename(new, path)  # under this name it is locked from the start, so nobody takes it for abandoned
        return cls(path, is_private=True, held=held)

    @classmethod
    def use(cls, path: Path) -> ColumnFolder:
        """One that stays. Raises `ProgramError` while another process uses it."""
        held = contextlib.ExitStack()
        refusal = f"another process keeps its replay in {path}; this one cannot. Stop that, or use another folder."
        held.enter_context(files.hold(path / _LOCK, refusal=refusal))
        return cls(path, is_private=False, held=held)

    def close(self) -> None:
        """Twice is fine. Processes that have mapped the files keep what they have."""
        if self.is_private:
            shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()


def remove_abandoned(shared_memory: Path = SHARED_MEMORY) -> int:
    """Remove the folders of this user's processes that were killed; how many. For those who start services."""
    return _remove_abandoned_in(shared_memory / f"ludus-{os.getuid()}")


def _remove_abandoned_in(root: Path) -> int:
    num = 0
    with contextlib.suppress(FileNotFoundError):
        for path in list(root.iterdir()):
            if path.name.startswith("."):
                continue
            try:
                if not (path / _LOCK).exists():
                    continue  # being removed by its owner
                with files.hold(path / _LOCK, refusal="in use"):
                    shutil.rmtree(path, ignore_errors=True)
                    num += 1
            except errors.ProgramError:  # its owner lives
                continue
    return num


def _has_room(folder: Path, num_bytes: int) -> bool:
    try:
        stat = os.statvfs(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK) and stat.f_bavail * stat.f_frsize >= num_bytes * _SPARE
