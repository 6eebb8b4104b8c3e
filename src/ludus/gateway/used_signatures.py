"""Signatures that were used, for as long as they would be accepted.

With a path they are also written to a file, one line each, so that the successor of a process that died knows them. A
line that was cut off by its death belongs to a request that was not run.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

from ludus import files

__all__ = ["UsedSignatures"]

_MAX_REMEMBERED = 1_000_000
_MAX_FILE_BYTES = 1024 * 1024  # beyond what is still needed


class UsedSignatures:
    """`others` are files of the same kind, of other workers; what they hold counts as used, too."""

    def __init__(
        self, keep_s: float, *, now: Callable[[], float], path: Path | None = None, others: Iterable[Path] = ()
    ) -> None:
        self._keep_s = keep_s
        self._now = now
        self._until: OrderedDict[str, float] = OrderedDict()
        self._path = path
        self._fd = -1
        self._num_bytes = 0
        if path is not None:
            known = {each for other in {path, *others} for each in _read(other)}
            self._until.update((signature, until) for until, signature in sorted(known))
            files.make_folder(path.parent)
            files.remove_parts(path.parent, path.name)
            self._rewrite(path)

    def __contains__(self, signature: str) -> bool:
        return signature in self._until

    def add(self, signature: str) -> None:
        """Raises `OSError` if it cannot be written down; then it does not count as used."""
        now = self._now()
        while self._until:
            oldest, until = next(iter(self._until.items()))
            if until > now and len(self._until) < _MAX_REMEMBERED:
                break
            del self._until[oldest]
        until = now + self._keep_s
        if self._path is not None:
            line = f"{until:.3f} {signature}\n".encode()
            if self._num_bytes > _MAX_FILE_BYTES:
                self._rewrite(self._path)
            _write_all(self._fd, line)
            self._num_bytes += len(line)
        self._until[signature] = until

    def _rewrite(self, path: Path) -> None:
        """Keep only what is still needed. Until the new file has its name, the old one is as good."""
        now = self._now()
        lines = [f"{until:.3f} {signature}\n" for signature, until in self._until.items() if until > now]
        files.replace(path, ["".join(lines).encode()], mode=files.PRIVATE)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.close()
        self._fd, self._num_bytes = fd, 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _write_all(fd: int, data: bytes) -> None:
    at = 0
    while at < len(data):
        at += os.write(fd, data[at:])


def _read(path: Path) -> list[tuple[float, str]]:
    """What a file has, without lines that are cut off or damaged."""
    try:
        text = path.read_bytes().decode("ascii", "replace")
    except FileNotFoundError:
        return []
    found = []
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) == 3 and words[1].isdigit() and len(words[2]) == 64:
            try:
                found.append((float(words[0]), f"{words[1]} {words[2]}"))
            except ValueError:
                continue
    return found
