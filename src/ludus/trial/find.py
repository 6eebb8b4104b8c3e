"""The one way to a trial's folder by its name: for every command and for Python.

    find("monday").path                       # trials/monday, or the folder monday
    find("monday", trained=True)              # only if `ludus.train` made it
    find_all("trials", trained=True)          # oldest first

Reads names of files only.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ludus import errors, spelling
from ludus.program.folder import TrialFolder

__all__ = ["find", "find_all"]

_CONFIG_FILE = "config.json"
_MARKS = ("trial.json", _CONFIG_FILE)  # either will do: trial.json may be lost, and only training has a config


def find(name: str | Path, *, project: str | Path = "trials", trained: bool = False) -> TrialFolder:
    """The folder of a trial, given its name under `project` or its path; `trained`: that of a training run.

    Raises `ProgramError`, which tells the nearest name there is, or that the trial is not a training run.
    """
    for path in (Path(project) / name, Path(name)):
        if _is_trial(path, trained=trained):
            return TrialFolder(path.absolute())
    known = [folder.path.name for folder in find_all(project, trained=trained)]
    nearest = spelling.nearest(Path(name).name, known)
    for path in (Path(project) / name, Path(name)):
        if _is_trial(path, trained=False):
            raise errors.ProgramError(
                f"trial {path.name!r} in {path.absolute().parent} was not made by `ludus train`: it has no "
                f"{_CONFIG_FILE}. Of those that were: {nearest}"
            )
    raise errors.ProgramError(f"there is no trial {str(name)!r} in {Path(project).absolute()}. {nearest}")


def find_all(project: str | Path, *, trained: bool = False) -> list[TrialFolder]:
    """All trials of a project, oldest first by their config or, if they have none, their trial.json."""
    marks: dict[Path, float] = {}
    for mark in (_CONFIG_FILE,) if trained else _MARKS:  # the config last: it is never written again
        for path in Path(project).glob(f"*/{mark}"):
            with contextlib.suppress(FileNotFoundError):  # removed just now
                marks[path.parent] = path.stat().st_mtime
    return [TrialFolder(path.absolute()) for path in sorted(marks, key=lambda path: (marks[path], path))]


def _is_trial(path: Path, *, trained: bool) -> bool:
    return any((path / mark).is_file() for mark in ((_CONFIG_FILE,) if trained else _MARKS))
