"""The one lock of a trial's folder: one process at a time drives a trial, whatever it drives it with.

    with lock.driving(folder) as drive:                             # an engine, a run in one process: nobody joins it
    with lock.driving(folder, phase=Phase.STARTING) as drive:       # `ludus.init`, a run with workers: others wait …
        drive.mark(Phase.DRIVING)                                   # … until trial.json says how to join it
        drive.mark(Phase.ENDING)                                    # and wait again, to drive it themselves

`driver.lock` itself says which process holds it and its phase. `trial.json` cannot: until its driver has written it, it
is that of the driver before.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ludus import files
from ludus.command_line import trial_command
from ludus.program.process import is_alive, process_start

__all__ = ["LOCK_FILE", "Drive", "Holder", "Phase", "driving", "find_holder", "refusal"]

LOCK_FILE = "driver.lock"


class Phase(enum.StrEnum):
    """How far the process is that drives a trial."""

    STARTING = "starting"  # trial.json is not yet its own
    DRIVING = "driving"
    ENDING = "ending"


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The process of this host that holds a trial's lock, as the lock's file says."""

    pid: int
    start: int | None  # of `process_start`
    phase: Phase


class Drive:
    """The lock while it is held."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pid = os.getpid()

    def mark(self, phase: Phase) -> None:
        """Say how far this process is. Does nothing in a forked child, which has no part in the lock."""
        pid = os.getpid()
        if pid == self._pid:
            said = {"host": os.uname().nodename, "pid": pid, "start": process_start(pid), "phase": phase}
            self._write(json.dumps(said).encode())

    def clear(self) -> None:
        if os.getpid() == self._pid:
            self._write(b"")

    def _write(self, content: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk: those who come then see an unknown phase, and wait
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, content, 0)


@contextlib.contextmanager
def driving(folder: Path, *, phase: Phase = Phase.DRIVING) -> Iterator[Drive]:
    """Be the one process that drives the trial of this folder, which is made if need be.

    Raises `ProgramError` at once if another does, a thread of this process included. The kernel lets go of the lock
    when this process dies; forked children do not inherit it.
    """
    with files.hold(folder / LOCK_FILE, refusal=refusal(folder)) as fd:
        drive = Drive(fd)
        drive.mark(phase)
        try:
            yield drive
        finally:
            drive.clear()


def find_holder(folder: Path) -> Holder | None:
    """Who holds the lock, as its file says; `None` if that is unknown.

    It is free then, was taken just now, or was last held by a process that is gone, or of another host.
    """
    try:
        said = json.loads((folder / LOCK_FILE).read_bytes())
        holder = Holder(pid=said["pid"], start=said["start"], phase=Phase(said["phase"]))
        is_known = said["host"] == os.uname().nodename and is_alive(holder.pid, holder.start)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return holder if is_known else None


def refusal(folder: Path) -> str:
    """What to tell those who come while another process drives the trial."""
    return (
        f"trial {folder.name!r} is running: another process drives it. Wait for it, stop it "
        f"({trial_command('ctl', folder, 'exit')}), or choose another name."
    )
