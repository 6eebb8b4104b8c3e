"""Whether a process of this host still runs, and is the one that is meant."""

from __future__ import annotations

import os

__all__ = ["is_alive", "process_start"]


def process_start(pid: int) -> int | None:
    """When a process of this host was started, in the kernel's ticks since boot; None if that cannot be seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def is_alive(pid: int, start: int | None = None) -> bool:
    """Whether a process lives and, if it is known when the one that is meant was started, is that one."""
    if start is not None and process_start(pid) not in (None, start):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
