"""Is a worker hung? What its engine can see of it, and the rule that tells hung from busy.

- Its process is stopped (SIGSTOP) for `STOPPED_S`: hung.
- No heartbeat for `SILENT_S`, and its process uses no CPU time: hung; a deadlock that holds the interpreter, say.
- No heartbeat, but CPU time is used: busy, in C code that does not let other threads run.
- Heartbeats: its process runs. What its loop may take is `RestartPolicy.max_busy_s`; see `workers/heartbeat.py`.

Time in which the supervisor itself could not look is not counted: a driver that was stopped does not take its workers
for hung when it goes on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ludus.workers.heartbeat import Beat

__all__ = ["LOOK_EVERY_S", "SILENT_S", "STOPPED_S", "HangDetector", "Vitals", "read_process"]

LOOK_EVERY_S = 0.5
STOPPED_S = 2.0
SILENT_S = 30.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Vitals:
    """What an engine sees of one worker now. `cpu_s` is None where the process cannot be looked at."""

    beat: Beat | None  # the last one
    is_stopped: bool = False
    cpu_s: float | None = None


class HangDetector:
    """Decides for one incarnation of a worker, look by look."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._last: Vitals | None = None
        self._stopped_s = 0.0
        self._silent_s = 0.0

    def look(self, vitals: Vitals, now: float) -> str:
        """Why the worker is hung; empty if it is not, or not yet."""
        passed = 0.0 if self._looked_at is None else min(now - self._looked_at, 2 * LOOK_EVERY_S)
        before, self._last, self._looked_at = self._last, vitals, now
        self._stopped_s = self._stopped_s + passed if vitals.is_stopped else 0.0
        is_silent = before is not None and (before.beat, before.cpu_s) == (vitals.beat, vitals.cpu_s)
        self._silent_s = self._silent_s + passed if is_silent else 0.0
        if self._stopped_s >= STOPPED_S:
            return f"its process has been stopped for {self._stopped_s:.0f} s (SIGSTOP, by somebody)"
        if self._silent_s >= SILENT_S and vitals.beat is not None:
            return f"it has sent no heartbeat and used no CPU time for {self._silent_s:.0f} s"
        return ""


def read_process(pid: int) -> tuple[bool, float] | None:
    """Whether a process of this host is stopped, and the CPU seconds it has used; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0] == b"T", (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
