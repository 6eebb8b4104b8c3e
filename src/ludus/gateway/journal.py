"""What a gateway worker leaves for its successor: which sessions began and how they ended.

One line for each event, appended by one write, so it survives the death of the process (not that of the machine):

    + SESSION RUN TIME
    - SESSION REASON TIME
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LOST", "Journal", "read_journal"]

LOST = "lost"
_COMPACT_ABOVE = 16 * 1024 * 1024


class Journal:
    """Append-only. Opening it says which sessions a predecessor had left open, and closes them as lost."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.lost = tuple(_open_sessions(path))
        if path.exists() and path.stat().st_size > _COMPACT_ABOVE:
            path.rename(path.with_suffix(".old"))
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for session in self.lost:
            self.ended(session, LOST)

    def began(self, session: str, run: str) -> None:
        os.write(self._fd, f"+ {session} {run or '-'} {time.time():.3f}\n".encode())

    def ended(self, session: str, reason: str) -> None:
        os.write(self._fd, f"- {session} {reason} {time.time():.3f}\n".encode())

    def close(self) -> None:
        os.close(self._fd)


def read_journal(path: Path) -> Iterator[tuple[str, str, str, float]]:
    """`(sign, session, run or reason, time)` of each event; a line that was cut off is left out."""
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return
    for line in text.splitlines(keepends=True):
        words = line.split()
        if len(words) == 4 and line.endswith("\n"):
            yield words[0], words[1], words[2], float(words[3])


def _open_sessions(path: Path) -> list[str]:
    live: dict[str, None] = {}
    for sign, session, _word, _time in read_journal(path):
        if sign == "+":
            live[session] = None
        else:
            live.pop(session, None)
    return list(live)
