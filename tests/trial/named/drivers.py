"""Scripts that drive trials in processes of their own, and what the machine says of their processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def start(code: str, *args: object) -> subprocess.Popen[str]:
    """A Python process that runs `code`; it is driven by its stdin and answers on its stdout."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_line(process: subprocess.Popen[str]) -> str:
    """Its next line; the test's own time-out bounds the wait."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, process.communicate(timeout=300)
    return line


def finish(process: subprocess.Popen[str], timeout_s: float = 120.0) -> tuple[str, str]:
    """What it still said. It must end well."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it did not end: {process.communicate()}") from None
    assert process.returncode == 0, err
    return out, err


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def mentioning(text: str) -> list[int]:
    """The live processes, other than this one, whose command line has a text in it."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in command and is_alive(int(entry)):
                found.append(int(entry))
    return found


def wait_until(is_so: Callable[[], object], timeout_s: float = 60.0) -> float:
    """Wait for something to be so; returns how long it took."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < timeout_s, "it never came to be"
        time.sleep(0.01)
    return time.monotonic() - began
