"""Who trains in a trial: one process at a time, from before its first file until after its last."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from ludus import files

__all__ = ["LOCK_FILE", "claimed"]

LOCK_FILE = ".lock"


def claimed(folder: Path) -> AbstractContextManager[None]:
    """Have a trial's folder to oneself. Raises `ProgramError` at once if another has it, a thread of ours included."""
    refusal = f"trial {folder.name!r} is running: another process drives it. Wait, stop it, or choose another name."
    return files.hold(folder / LOCK_FILE, refusal=refusal)
