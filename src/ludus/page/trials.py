"""The trials of a project as the index shows them. Files are read again only when they have changed."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus import files
from ludus.clock import SYSTEM, Clock
from ludus.experiment import results
from ludus.league.folder import FOLDER as LEAGUE_FOLDER
from ludus.program.folder import TrialRecord
from ludus.telemetry.metrics_file import METRICS_FILE
from ludus.trial.find import find_all

__all__ = ["TrialIndex", "TrialRow", "is_running", "kind_of"]

_WATCHED = (
    results.CONFIG_FILE,
    results.RESULT_FILE,
    METRICS_FILE,
    "trial.json",
    "checkpoints/checkpoints.json",
    LEAGUE_FOLDER,
)
_LOOK_EVERY_S = 1.0
_LOG = logging.getLogger(__name__)
_Signature = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """`status`: running, ended, stopped or lost, as in `TrialSummary`; of a trial without a training run, also idle.

    damaged: its files cannot be read, or say what none of ours would. The log says why.
    """

    folder: Path
    kind: str
    env: str
    algorithm: str
    steps: int
    total_steps: int | None
    status: str
    started: float  # since 1970


class TrialIndex:
    """A part of the site. Safe from any thread. However many browsers ask, folders are looked at once a second."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._last: tuple[float, Path, list[TrialRow]] | None = None
        self._known: dict[Path, tuple[_Signature, TrialRow]] = {}
        self._lock = threading.Lock()

    def rows(self, project: Path) -> list[TrialRow]:
        """The newest first. A trial that is removed while it is looked at is left out."""
        with self._lock:
            now = self._clock.now()
            if self._last is not None and self._last[1] == project and now - self._last[0] < _LOOK_EVERY_S:
                return self._last[2]
            found = []
            paths = [folder.path for folder in reversed(find_all(project))]
            for path in paths:
                try:
                    found.append(self._row(path))
                except OSError:
                    continue
            self._known = {path: self._known[path] for path in paths if path in self._known}
            self._last = now, project, found
            return found

    def row(self, path: Path) -> TrialRow:
        """Of one trial. Raises `OSError` for one that is removed just now."""
        with self._lock:
            return self._row(path)

    def _row(self, path: Path) -> TrialRow:
        signature = _signature(path)
        known = self._known.get(path)
        if known is None or known[0] != signature:
            known = self._known[path] = signature, _row_of(path, runs=signature[0])
        return known[1]


def is_running(folder: Path) -> bool:
    """Whether a process drives this trial, as far as its folder says; a damaged record says no."""
    try:
        return TrialRecord(**files.read_json(folder / "trial.json")).is_live
    except (OSError, ValueError, TypeError):
        return False


def kind_of(folder: Path) -> str:
    """league, training, or services: what a script has made by `ludus.init`."""
    if (folder / LEAGUE_FOLDER).is_dir():
        return "league"
    return "training" if (folder / results.CONFIG_FILE).is_file() else "services"


def _signature(path: Path) -> _Signature:
    """Whether it runs, and of each file when it was written and how long it is."""
    marks: list[Any] = [is_running(path)]
    for name in _WATCHED:
        try:
            stat = (path / name).stat()
        except OSError:
            marks.append(None)
        else:
            marks.append((stat.st_mtime_ns, stat.st_size))
    return tuple(marks)


def _row_of(path: Path, *, runs: bool) -> TrialRow:
    """One damaged trial must not hide all others: it is a row that says so."""
    try:
        return _read(path, runs=runs)
    except FileNotFoundError:
        raise  # it was removed
    except Exception:
        _LOG.exception("the trial in %s cannot be shown", path)
        return TrialRow(
            folder=path, kind="", env="", algorithm="", steps=0, total_steps=None, status="damaged",
            started=path.stat().st_mtime,
        )  # fmt: skip


def _read(path: Path, *, runs: bool) -> TrialRow:
    kind = kind_of(path)
    if not (path / results.CONFIG_FILE).is_file():
        return TrialRow(
            folder=path,
            kind=kind,
            env="",
            algorithm="",
            steps=0,
            total_steps=None,
            status="running" if runs else "idle",
            started=(path / "trial.json").stat().st_mtime,
        )
    summary = results.summarise(path)
    return TrialRow(
        folder=path,
        kind=kind,
        env=summary.env,
        algorithm=summary.algorithm,
        steps=summary.steps,
        total_steps=summary.total_steps,
        status=summary.status,
        started=(path / results.CONFIG_FILE).stat().st_mtime,
    )
