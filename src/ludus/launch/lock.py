"""One driver for a trial, whatever starts its workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ludus import errors, files

__all__ = ["driving"]

_FILE = "driver.lock"


@contextlib.contextmanager
def driving(folder: Path) -> Iterator[None]:
    """Be the one that drives the trial of this folder. Raises `ProgramError` at once if another process is."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.hold(folder / _FILE))
        except BlockingIOError:
            raise errors.ProgramError(
                f"trial {folder.name!r} is running: another process drives it. Wait for it, stop it (ludus ctl "
                f"{folder} exit), or choose another name."
            ) from None
        yield
