"""Commands that can be pasted: `ludus …`, or the path of it where `ludus` alone would not be found."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

__all__ = ["command_line", "project_words", "trial_command"]


def command_line(*words: str) -> str:
    """A `ludus` command as it must be typed in this shell and folder to run this very installation."""
    return shlex.join([*_program(), *words])


def trial_command(command: str, folder: Path, *words: str) -> str:
    """A command on the trial of this folder: by its name, and its project if that is not the default one here."""
    project = folder.absolute().parent
    where = [] if project == Path("trials").absolute() else ["--project", _short(project)]
    return command_line(command, folder.name, *words, *where)


def project_words(project: str) -> list[str]:
    """What to add to a command that speaks of trials of a project by their names."""
    return [] if project == "trials" else ["--project", project]


def _program() -> list[str]:
    own = Path(sys.executable).parent / "ludus"
    found = shutil.which("ludus")
    if found is not None and Path(found).resolve() == own.resolve():
        return ["ludus"]
    if own.is_file():
        return [_short(own)]
    if found is not None:
        return ["ludus"]
    return [_short(Path(sys.executable)), "-m", "ludus"]


def _short(path: Path) -> str:
    """Relative, if it is below the working folder."""
    shown = os.path.relpath(path)
    return str(path) if shown.startswith(os.pardir) else shown
