"""Which version a new session plays when its game does not ask for one: tags, each with its share.

The shares are exact: of any number of sessions, each tag has its share of them rounded down or up, over all workers of
a port together. They count in one file.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
from collections.abc import Mapping
from pathlib import Path

from ludus import errors

__all__ = ["Router"]

_HEAD = 16  # bytes: whose counts these are


class Router:
    """Called for each session that begins. Without a `path` it counts for itself alone."""

    def __init__(self, shares: Mapping[str, float], path: Path | None = None) -> None:
        if not shares or min(shares.values()) < 0 or abs(sum(shares.values()) - 1.0) > 1e-9:
            raise errors.ConfigError(f"the shares {dict(shares)} must be 0 or more, and 1 together")
        self._tags = tuple(shares)
        self._shares = tuple(shares.values())
        self._fd = -1
        size = _HEAD + 8 * len(self._tags)
        head = hashlib.sha256(repr(sorted(shares.items())).encode()).digest()[:_HEAD]
        if path is None:
            self._memory: mmap.mmap = mmap.mmap(-1, size)
            self._memory[:_HEAD] = head
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if os.pread(self._fd, _HEAD, 0) != head:  # other shares: they are counted from the beginning
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, head, 0)
            os.ftruncate(self._fd, size)
            self._memory = mmap.mmap(self._fd, size)
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._counts = memoryview(self._memory)[_HEAD:].cast("q")

    def __call__(self) -> Mapping[str, str]:
        """What the next session wants: the tag that is furthest behind its share."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            counts = self._counts
            total = sum(counts) + 1
            chosen = max(range(len(self._tags)), key=lambda i: (total * self._shares[i] - counts[i], -i))
            counts[chosen] += 1
        finally:
            if self._fd >= 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        return {"": self._tags[chosen]}

    def counts(self) -> dict[str, int]:
        """How many sessions each tag was given."""
        return dict(zip(self._tags, self._counts, strict=True))
