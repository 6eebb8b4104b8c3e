"""What the machine says about processes, for tests that start and end them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def is_alive(pid: int) -> bool:
    stat = _stat(pid)
    return stat is not None and stat[0] != "Z"


def members(group: int) -> list[int]:
    """The live processes of a process group."""
    return [pid for pid in _all_pids() if is_alive(pid) and (stat := _stat(pid)) and int(stat[2]) == group]


def parent(pid: int) -> int | None:
    stat = _stat(pid)
    return None if stat is None else int(stat[1])


def mentioning(text: str) -> list[int]:
    """The live processes, other than this one, whose command line has a text in it."""
    found = []
    for pid in _all_pids():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if pid != os.getpid() and text.encode() in command and is_alive(pid):
            found.append(pid)
    return found


def wait_until(is_so: Callable[[], object], *, timeout_s: float = 60.0) -> float:
    """Wait for something to be so; returns how long it took."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < timeout_s, "it never came to be"
        time.sleep(0.01)
    return time.monotonic() - began


def _all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on: state, parent, group, …"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
