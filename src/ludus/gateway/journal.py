"""What a gateway worker leaves for its successor: which sessions began and how they ended.

One line for each event, appended by one write, so it survives the death of the process (not that of the machine):

    + SESSION RUN TIME
    - SESSION REASON TIME
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ludus.gateway.appending import Failures, append

__all__ = ["LOST", "Journal", "lost_sessions", "read_journal"]

LOST = "lost"
_COMPACT_ABOVE = 16 * 1024 * 1024
_REMEMBER_LOST_S = 24 * 3600.0


class Journal:
    """Append-only. Opening it says which sessions its predecessors had left open, and closes them as lost.

    `others` are journals of the same port, of workers that may be there no more; `lost` has their sessions, too.
    """

    def __init__(self, path: Path, others: Iterable[Path] = ()) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.lost = tuple(lost_sessions({path, *others}))
        self.failures = Failures(f"{path} cannot be written, so no session can begin")
        self._unwritten = b""  # ends; they are written with what comes next
        closing = [session for session, (what, _) in _last_events(path).items() if what == "+"]
        if path.exists() and path.stat().st_size > _COMPACT_ABOVE:
            closing = lost_sessions([path])
            path.rename(path.with_suffix(".old"))
        elif not _ends_with_a_line(path):
            self._unwritten = b"\n"
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for session in closing:
            self.ended(session, LOST)

    def began(self, session: str, run: str) -> None:
        """Raises `OSError` if it cannot be written; then nobody would know that the session was lost."""
        try:
            self._write(f"+ {session} {run or '-'} {time.time():.3f}\n".encode())
        except OSError as error:
            self.failures.add(error)
            raise

    def ended(self, session: str, reason: str) -> None:
        """Never raises: what cannot be written now is written with the next event."""
        line = f"- {session} {reason} {time.time():.3f}\n".encode()
        try:
            self._write(line)
        except OSError as error:
            self._unwritten += line
            self.failures.add(error)

    def _write(self, line: bytes) -> None:
        append(self._fd, self._unwritten + line)
        self._unwritten = b""

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


def lost_sessions(paths: Iterable[Path]) -> list[str]:
    """Sessions of dead workers that were open, or were found lost within a day and have not begun again since."""
    last: dict[str, tuple[str, float]] = {}
    for path in paths:
        for session, event in _last_events(path).items():
            if session not in last or event[1] > last[session][1]:
                last[session] = event
    horizon = time.time() - _REMEMBER_LOST_S
    return [s for s, (what, when) in last.items() if what == "+" or (what == LOST and when >= horizon)]


def _last_events(path: Path) -> dict[str, tuple[str, float]]:
    """By session: `+` or the reason of its end, and the time."""
    return {session: (sign if sign == "+" else word, when) for sign, session, word, when in read_journal(path)}


def _ends_with_a_line(path: Path) -> bool:
    try:
        return path.read_bytes()[-1:] in (b"", b"\n")
    except FileNotFoundError:
        return True
