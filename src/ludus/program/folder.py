"""A trial's folder: everything one run leaves on disk.

project/trial/
├── trial.json      where its names are, who drives it, and its secret if it has one (readable by the owner only)
├── driver.lock     held by the process that drives it; see `lock.py`
├── program.json    the topology
├── logs/           one file for each worker: policy-0.log
└── workers/        what each worker was given, and how it ended (readable by the owner only)
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ludus import errors, files
from ludus.command_line import trial_command
from ludus.program.process import is_alive, process_start

__all__ = ["TrialFolder", "TrialRecord", "write_private"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """What `trial.json` says."""

    experiment: str
    trial: str
    names_url: str
    engine: str
    driver_pid: int
    driver_host: str
    driver_start: int | None = None  # of `process_start`: tells the driver from a later process with its id
    secret: str | None = None
    ended: str | None = None  # how, once it has

    @classmethod
    def own(
        cls, folder: Path, *, experiment: str, names_url: str, engine: str, secret: str | None = None
    ) -> TrialRecord:
        """That of a trial which this process drives from now on."""
        return cls(
            experiment=experiment,
            trial=folder.name,
            names_url=names_url,
            engine=engine,
            driver_pid=os.getpid(),
            driver_start=process_start(os.getpid()),
            driver_host=os.uname().nodename,
            secret=secret,
        )

    @property
    def is_live(self) -> bool:
        """Whether its driver still runs, as far as this host can see."""
        if self.ended is not None:
            return False
        return self.driver_host != os.uname().nodename or is_alive(self.driver_pid, self.driver_start)


class TrialFolder:
    """The paths of one trial."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, project: str | Path, trial: str | None) -> TrialFolder:
        """Make the folder of a new trial, or take up that of a trial that has ended.

        Without a name, one is made from the time. Raises `ProgramError` if a trial of that name is running.
        """
        if trial is not None and (trial in ("", "..") or trial != Path(trial).name):
            raise errors.ProgramError(f"{trial!r} cannot name a trial: it must be one folder's name, without '/'.")
        folder = cls(Path(project).absolute() / trial) if trial else _make_timed(Path(project).absolute())
        if trial and (known := folder.find()) is not None and known.is_live:
            raise errors.ProgramError(
                f"trial {trial!r} is running: process {known.driver_pid} on {known.driver_host} drives it. Wait for "
                f"it, stop it ({trial_command('ctl', folder.path, 'exit')}), or choose another name."
            )
        folder.make()
        return folder

    def make(self) -> None:
        """Make its folders, as far as they are not there."""
        for part in (self.path, self.path / "logs", self.path / "workers"):
            files.make_folder(part)
        (self.path / "workers").chmod(0o700)

    def log_file(self, worker: str) -> Path:
        return self.path / "logs" / f"{worker.replace('/', '-')}.log"

    def spec_file(self, worker: str) -> Path:
        return self.path / "workers" / f"{worker.replace('/', '-')}.spec"

    def end_file(self, worker: str) -> Path:
        return self.path / "workers" / f"{worker.replace('/', '-')}.end"

    def save(self, trial: TrialRecord) -> None:
        write_private(self.path / "trial.json", json.dumps(asdict(trial), indent=2).encode())

    def save_program(self, description: dict[str, Any]) -> None:
        text = json.dumps(description, indent=2, ensure_ascii=False)
        files.replace(self.path / "program.json", [text.encode() + b"\n"])

    def load_worker_names(self) -> list[str]:
        """The workers of its program."""
        description = files.read_json(self.path / "program.json")
        return [worker for node in description["nodes"] for worker in node["workers"]]

    def find(self) -> TrialRecord | None:
        """What `trial.json` says; `None` if there is none, or if it is damaged, which is logged.

        Damage does not block a trial: whether another process drives it is then up to the locks to say.
        """
        path = self.path / "trial.json"
        try:
            return self._read(path)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            _LOG.warning("%s is damaged (%s): the trial is taken for one that nobody drives.", path, error)
            return None

    def load(self) -> TrialRecord:
        """What `trial.json` says. Raises `ProgramError` if it cannot be read."""
        path = self.path / "trial.json"
        try:
            return self._read(path)
        except FileNotFoundError:
            raise errors.ProgramError(f"{self.path} is not the folder of a trial: it has no trial.json.") from None
        except (ValueError, TypeError) as error:
            raise errors.ProgramError(f"{path} cannot be read: it is damaged ({error}).") from None

    @staticmethod
    def _read(path: Path) -> TrialRecord:
        try:
            return TrialRecord(**files.read_json(path))
        except PermissionError:
            raise errors.ProgramError(f"{path} may be read only by the user who runs the trial.") from None

    def mark_ended(self, how: str) -> None:
        """Write down how the trial ended. What hinders that is logged: the end of a run must not cost its result."""
        try:
            self.save(replace(self.load(), ended=how))
        except (errors.ProgramError, OSError) as error:
            _LOG.warning("the trial has ended (%s), which could not be written down: %s", how, error)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    files.replace(path, [content], mode=files.PRIVATE)


def _make_timed(project: Path) -> TrialFolder:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    files.make_folder(project)
    for number in range(1, 1000):
        path = project / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        files.sync_folder(project)
        return TrialFolder(path)
    raise errors.ProgramError(f"{project} has a thousand trials started this second; give this one a name.")
