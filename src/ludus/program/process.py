"""Processes of this host: whether one still runs and is the one that is meant; how this one ends."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import NoReturn

__all__ = ["exit_at_once", "is_alive", "process_start"]


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
    except (ProcessLookupError, OverflowError):  # no process has a number as large as that
        return False
    except PermissionError:
        return True
    return True


def exit_at_once(code: int) -> NoReturn:
    """End this process without unloading its modules: for torch that takes half a second, and nobody needs it.

    Handlers registered for the exit run and streams are flushed. Threads that still run are cut off.
    """
    atexit._run_exitfuncs()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # its reader is gone, or it was closed: nobody can be informed
            code = code or 120  # as the interpreter's own exit has it
    os._exit(code)
