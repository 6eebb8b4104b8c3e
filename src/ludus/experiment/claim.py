"""Who trains in a trial: one process at a time, from before its first file until after its last."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ludus import errors, files

__all__ = ["LOCK_FILE", "claimed"]

LOCK_FILE = ".lock"


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Have a trial's folder to oneself. Raises `ProgramError` at once if another has it, a thread of ours included."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.hold(folder / LOCK_FILE))
        except BlockingIOError:
            raise errors.ProgramError(
                f"trial {folder.name!r} is running: another process drives it. Wait for it, stop it, or choose another "
                "name."
            ) from None
        yield
