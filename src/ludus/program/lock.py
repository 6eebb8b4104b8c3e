"""One driver for a trial, whatever starts its workers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from ludus import files
from ludus.command_line import trial_command

__all__ = ["driving"]

_FILE = "driver.lock"


def driving(folder: Path) -> AbstractContextManager[None]:
    """Be the one that drives the trial of this folder. Raises `ProgramError` at once if another process is."""
    refusal = (
        f"trial {folder.name!r} is running: another process drives it. Wait for it, stop it "
        f"({trial_command('ctl', folder, 'exit')}), or choose another name."
    )
    return files.hold(folder / _FILE, refusal=refusal)
