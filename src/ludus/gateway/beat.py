"""Signs of life of a gateway worker: a small file that it counts up while it runs, read by those who watch it.

The worker's main thread writes it. So it stands still when the process is stopped, or when code holds the interpreter's
lock; it also says how often the event loop has turned, which an actor's method can hold up alone.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

from ludus import files

__all__ = ["EVERY_S", "Beat", "Pulse", "is_process", "is_stopped", "read_pulse"]

EVERY_S = 0.25
_PULSE = struct.Struct("<QQQQ")
_COUNTS = struct.Struct("<QQ")
_COUNTS_AT = 16


class Pulse(NamedTuple):
    """What a beat's file says."""

    pid: int
    started: int  # when that process was, by the kernel; with the pid, it names a process for good
    num_beats: int
    num_turns: int  # of the event loop


class Beat:
    """Written by one process, from one thread."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pid = os.getpid()
        files.replace(path, [_PULSE.pack(pid, _stat(pid)[1], 0, 0)], durable=False)
        self._path = path
        self._num = 0
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _PULSE.size)

    def beat(self, num_turns: int) -> None:
        self._num += 1
        _COUNTS.pack_into(self._memory, _COUNTS_AT, self._num, num_turns)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        self._memory.close()


def read_pulse(path: Path) -> Pulse | None:
    """None if no worker has written one."""
    try:
        return Pulse(*_PULSE.unpack(path.read_bytes()))
    except FileNotFoundError:
        return None


def is_process(pulse: Pulse) -> bool:
    """Whether the process that wrote it is still there; its id may belong to another by now."""
    return _stat(pulse.pid)[1] == pulse.started


def is_stopped(pulse: Pulse) -> bool:
    """By SIGSTOP, or by a debugger."""
    state, started = _stat(pulse.pid)
    return started == pulse.started and state in ("T", "t")


def _stat(pid: int) -> tuple[str, int]:
    """State and start of a process; without one, or where there is no /proc, a state that stands for nothing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "", 0
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])
