"""What the processes that listen on a port use, as /proc tells it. Nothing, where there is no /proc."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Usage", "UsageMeter", "is_here", "listeners"]

_PROC = Path("/proc")
_LISTENING = "0A"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Of all processes of the server together, between two moments."""

    num_processes: int
    cpu_percent: float  # 100: one core
    memory_mib: float  # resident, at the end


def is_here(host: str) -> bool:
    """Whether the host is this machine."""
    try:
        addresses = {item[4][0] for item in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    for address in addresses:
        family = socket.AF_INET6 if ":" in str(address) else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                return False
    return bool(addresses)


def listeners(port: int) -> list[int]:
    """The ids of the processes that listen on it and that this user may look at."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in _lines(_PROC / "net" / table)[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{words[9]}]")
    if not inodes:
        return []
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit() and _holds(entry / "fd", inodes)]


class UsageMeter:
    """Measures from its making to `read`."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)
        self._began = time.monotonic()
        self._cpu_s = {pid: _cpu_s(pid) for pid in self._pids}

    def read(self) -> Usage | None:
        """`None` if there was no process to look at."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        used = sum(max(_cpu_s(pid) - before, 0.0) for pid, before in self._cpu_s.items())
        if not self._pids:
            return None
        memory = sum(_memory_mib(pid) for pid in self._pids)
        return Usage(
            num_processes=len(self._pids), cpu_percent=round(100 * used / seconds, 1), memory_mib=round(memory, 1)
        )


def _holds(folder: Path, inodes: set[str]) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(os.readlink(entry.path) in inodes for entry in entries)
    except OSError:  # another user's, or already gone
        return False


def _cpu_s(pid: int) -> float:
    lines = _lines(_PROC / str(pid) / "stat")
    if not lines:
        return 0.0
    fields = lines[0].rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mib(pid: int) -> float:
    for line in _lines(_PROC / str(pid) / "status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
