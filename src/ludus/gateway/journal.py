"""What a gateway worker leaves for its successor: which sessions began and how they ended.

One record for each event, appended by one write, so it survives the death of the process (not that of the machine).
`journal_records.py` has the format.

    8000-0.journal             the segment that is written, and all that a start has to read
    8000-0.journal.000041      a closed segment: history, for people and checks; the oldest are removed
    8000-0.journal.new         the next segment while it is prepared

A segment begins with what is carried over from the one before: sessions that are live, and those that were lost within
a day. So its size depends on how many sessions there are, not on how many there have been. When a segment is full, a
thread writes the head of the next one. Events go to the old segment until then, and are added to the new one before it
takes the old one's name. The file under the journal's name is complete at all times, wherever the worker is killed. A
power cut leaves the old segment or the new one: that one is synced before it gets its name, and its folder afterwards,
both by threads, since a sync can take as long as the disk likes.
"""

from __future__ import annotations

import glob
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ludus import files
from ludus.gateway.appending import Failures, append
from ludus.gateway.journal_records import Record, encode, read_records, read_tail

__all__ = ["LOST", "Journal", "lost_sessions", "read_journal"]

_LOG = logging.getLogger(__name__)
LOST = "lost"
_REMEMBER_LOST_S = 24 * 3600.0
_MAX_LOST = 16384  # that are carried over; the latest
_CLOSE_S = 10.0

Last = dict[str, tuple[str, str, float]]
"""By session, its last event: `+` or `-`, run or reason, Unix time."""


class Journal:
    """Append-only. Opening it says which sessions its predecessors had left open, and closes them as lost.

    `others` are journals of the same port, of workers that may be there no more; `lost` has their sessions, too. A
    segment is closed when `segment_bytes` were added to what it began with; `num_kept` closed segments are kept.
    """

    def __init__(
        self, path: Path, others: Iterable[Path] = (), *, segment_bytes: int = 1024 * 1024, num_kept: int = 16
    ) -> None:
        files.make_folder(path.parent)
        self.path = path
        self.failures = Failures(f"{path} cannot be written, so no session can begin")
        self._uncompacted = Failures(f"{path} cannot be compacted, so it grows")
        self._segment_bytes = segment_bytes
        self._num_kept = num_kept
        own = _last_events(path)
        self.lost = tuple(_lost_among([own, *(_last_events(other) for other in {*others} - {path})]))
        self._live: dict[str, tuple[str, float]] = {}  # run and start of each
        self._lost = {session: when for session, (_, word, when) in own.items() if word == LOST}
        self._unwritten = b""  # ends; they are written with what comes next
        self._compaction: _Compaction | None = None
        self._closed = _closed_segments(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._remove_second_name()
        num_cut_off, is_whole = read_tail(path)
        if is_whole:
            self._unwritten = b"\n"
        elif num_cut_off:
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - num_cut_off)
        self._size = os.fstat(self._fd).st_size
        self._compact_above = segment_bytes
        now = time.time()
        closing = [session for session, (sign, _, _) in own.items() if sign == "+"]
        self._lost |= dict.fromkeys(closing, now)
        self._write_end(b"".join(encode("-", session, LOST, now) for session in closing))

    @property
    def is_compacting(self) -> bool:
        """Whether the next segment is being prepared."""
        return self._compaction is not None

    def began(self, session: str, run: str) -> None:
        """Raises `OSError` if it cannot be written; then nobody would know that the session was lost."""
        now = time.time()
        run = run or "-"
        try:
            self._write(encode("+", session, run, now))
        except OSError as error:
            self.failures.add(error)
            raise
        self._live[session] = run, now
        self._lost.pop(session, None)
        if self._compaction is not None:
            self._compaction.since[session] = "=+", run, now

    def ended(self, session: str, reason: str) -> None:
        """Never raises: what cannot be written now is written with the next event."""
        now = time.time()
        self._live.pop(session, None)
        self._write_end(encode("-", session, reason, now))
        if self._compaction is not None:  # after the write, which may have switched: then it is an event of the new one
            self._compaction.since[session] = "=-", reason, now

    def _write_end(self, records: bytes) -> None:
        try:
            self._write(records)
        except OSError as error:
            self._unwritten += records
            self.failures.add(error)

    def _write(self, records: bytes) -> None:
        if self._compaction is not None and self._compaction.is_done:
            self._switch(self._compaction)
        records = self._unwritten + records
        append(self._fd, records)
        self._unwritten = b""
        self._size += len(records)
        if self._size > self._compact_above and self._compaction is None:
            self._compaction = _Compaction(self.path.with_name(f"{self.path.name}.new"), self._live, self._lost)

    def _switch(self, compaction: _Compaction) -> None:
        """Go on in the next segment, which is complete but for what has happened since it was started."""
        self._compaction = None
        try:
            compaction.complete()
            self._keep_history()
            files.move(compaction.path, self.path, durable=False)
        except OSError as error:
            compaction.discard()
            self._uncompacted.add(error)
            self._compact_above = self._size + self._segment_bytes
            return
        os.close(self._fd)
        self._fd = compaction.fd
        self._size = os.fstat(self._fd).st_size
        self._compact_above = self._size + max(self._segment_bytes, self._size // 2)
        threading.Thread(target=self._sync_names, name="journal", daemon=True).start()

    def _sync_names(self) -> None:
        try:
            files.sync_folder(self.path.parent)
        except OSError as error:
            self._uncompacted.add(error)

    def _keep_history(self) -> None:
        """Give the present segment a second name, under which it stays when the next one takes the first."""
        number = _number(self._closed[-1]) + 1 if self._closed else 1
        closed = self.path.with_name(f"{self.path.name}.{number:06d}")
        try:
            os.link(self.path, closed)
        except OSError as error:  # some file systems have no links
            _LOG.warning("%s: the closed segment is not kept as history: %s", self.path, error)
            return
        self._closed.append(closed)
        while len(self._closed) > self._num_kept:
            self._closed.pop(0).unlink(missing_ok=True)

    def _remove_second_name(self) -> None:
        """The predecessor was killed while it switched: its last segment has both names."""
        if self._closed and self._closed[-1].samefile(self.path):
            self._closed.pop().unlink()

    def close(self) -> None:
        if self._compaction is not None:
            self._compaction.wait(_CLOSE_S)
            self._compaction.discard()
            self._compaction = None
        os.close(self._fd)


class _Compaction:
    """The head of the next segment, written by a thread. `since` has what has happened after it was started."""

    def __init__(self, path: Path, live: Mapping[str, tuple[str, float]], lost: Mapping[str, float]) -> None:
        self.path = path
        self.fd = -1
        self.is_done = False
        self.since: Last = {}
        self._live = dict(live)
        self._lost = dict(lost)
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            records = [encode("=-", session, LOST, when) for session, when in _recently(self._lost)]
            records += [encode("=+", session, run, when) for session, (run, when) in self._live.items()]
            self.fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            append(self.fd, b"".join(records))
            files.sync(self.fd)
        except OSError as error:
            self._error = error
        finally:
            self.is_done = True

    def complete(self) -> None:
        """Add what has happened since. Raises `OSError` if the segment cannot be used."""
        if self._error is not None:
            raise self._error
        append(
            self.fd, b"".join(encode(sign, session, word, when) for session, (sign, word, when) in self.since.items())
        )

    def discard(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.path.unlink(missing_ok=True)

    def wait(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)


def read_journal(path: Path) -> Iterator[Record]:
    """`(sign, session, run or reason, time)` of each start (`+`) and end (`-`), from the oldest segment that is kept.

    Sessions that were live when that began have their starts first. Damaged records are left out, with a warning.
    """
    while True:
        inode = _inode(path)
        segments = [*(each for each in _closed_segments(path) if _inode(each) != inode), path]
        records = [list(read_records(segment)) for segment in segments]
        if _inode(path) == inode:  # otherwise the worker has switched to another segment
            break
    carried = {record[1]: record for record in records[0] if record[0].startswith("=")}
    yield from (("+", session, run, when) for sign, session, run, when in carried.values() if sign == "=+")
    for each in records:
        yield from (record for record in each if not record[0].startswith("="))


def lost_sessions(paths: Iterable[Path], *, is_quiet: bool = False) -> list[str]:
    """Sessions of dead workers that were open, or were found lost within a day and have not started again since.

    Reads files, so it is not for event loops. `is_quiet`: without warnings of damage.
    """
    return _lost_among([_last_events(path, is_quiet=is_quiet) for path in paths])


def _last_events(path: Path, *, is_quiet: bool = False) -> Last:
    records = read_records(path, is_limited=True, is_quiet=is_quiet)
    return {session: (sign[-1], word, when) for sign, session, word, when in records}


def _lost_among(journals: Iterable[Last]) -> list[str]:
    last: Last = {}
    for journal in journals:
        for session, event in journal.items():
            if session not in last or event[2] > last[session][2]:
                last[session] = event
    horizon = time.time() - _REMEMBER_LOST_S
    return [s for s, (sign, word, when) in last.items() if sign == "+" or (word == LOST and when >= horizon)]


def _recently(lost: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Those that are still remembered, with the time at which they were found lost."""
    horizon = time.time() - _REMEMBER_LOST_S
    latest = sorted(lost.items(), key=lambda each: each[1])[-_MAX_LOST:]
    return ((session, when) for session, when in latest if when >= horizon)


def _closed_segments(path: Path) -> list[Path]:
    """From the oldest to the latest."""
    names = path.parent.glob(glob.escape(path.name) + ".*")
    return sorted((each for each in names if each.suffix[1:].isdigit()), key=_number)


def _number(segment: Path) -> int:
    return int(segment.suffix[1:])


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
