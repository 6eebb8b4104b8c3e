"""The journal's records: one line each, with a checksum in front, so that damage costs the record it hit and no other.

    CRC32 + SESSION RUN TIME           a session began
    CRC32 - SESSION REASON TIME        it ended
    CRC32 =+ SESSION RUN TIME          carried over from the previous segment: it is live
    CRC32 =- SESSION REASON TIME       carried over from the previous segment: it has ended

Lines of the older format (`+ SESSION RUN TIME`, without a checksum) are read, too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

__all__ = ["Record", "encode", "read_records", "read_tail"]

_LOG = logging.getLogger(__name__)
MAX_READ_BYTES = 64 * 1024 * 1024  # at the start of a worker; compaction keeps segments far below this
MAX_READ_OLDER_BYTES = 8 * 1024 * 1024  # of the older format, which was never compacted
_MAX_LINE = 1024  # ids have 128 characters at most
_NUMBER = re.compile(r"\d+(\.\d+)?")
_INSIDE = re.compile(rb"[0-9a-f]{8} =?[+-] [^ ]+ [^ ]+ \d+\.\d{3}")

Record = tuple[str, str, str, float]
"""Sign, session, run or reason, Unix time."""


def encode(sign: str, session: str, word: str, when: float) -> bytes:
    body = f" {sign} {session} {word} {when:.3f}".encode()
    return b"%08x%s\n" % (crc32(body), body)


def read_records(path: Path, *, is_limited: bool = False, is_quiet: bool = False) -> Iterator[Record]:
    """All records that are whole; none if there is no file. `is_limited`: of a file that is too large only its end.

    Warns of damaged records, and of bytes that are not read. A last record that was cut off is left out silently.
    """
    try:
        with open(path, "rb") as file:
            limit = MAX_READ_OLDER_BYTES if file.read(2) in (b"+ ", b"- ") else MAX_READ_BYTES
            size = file.seek(0, 2)
            skipped = max(0, size - limit) if is_limited else 0
            file.seek(skipped)
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return
    if skipped:
        lines[0] = b""  # it may begin in the middle of a record
        if not is_quiet:
            _LOG.warning(
                "%s has %d bytes, and only its last %d are read: sessions that began before them and were live are "
                "answered unknown_session instead of session_lost",
                path, size, size - skipped,
            )  # fmt: skip
    num_damaged, first = 0, b""
    cut_off = lines.pop()  # what follows the last end of a line; nothing, usually
    for line in lines:
        record = _parse(line)
        if record is not None:
            yield record
        elif line:
            found = _search(line)
            yield from found
            if len(found) < 2:  # two: only the end of a line was damaged, and both its neighbours are there
                num_damaged += 1
                first = first or line
    yield from _search(cut_off)
    if num_damaged and not is_quiet:
        _LOG.warning(
            "%s: %d damaged record%s skipped, the first of them %r. A session whose start is among them is answered "
            "unknown_session instead of session_lost, one whose end is among them session_lost; no other is affected",
            path, num_damaged, "" if num_damaged == 1 else "s", first[:300],
        )  # fmt: skip


def read_tail(path: Path) -> tuple[int, bool]:
    """How many bytes follow the last end of a line, and whether a whole record is among them."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _MAX_LINE))
        tail = file.read().rpartition(b"\n")[2]
    return len(tail), bool(_search(tail))


def _parse(line: bytes) -> Record | None:
    body = line[8:]
    if line[:8] == b"%08x" % crc32(body):
        sign, session, word, when = body.decode("ascii").split()
        return sign, session, word, float(when)
    if line[:2] in (b"+ ", b"- ") and line.isascii():
        words = line.decode("ascii").split()
        if len(words) == 4 and _NUMBER.fullmatch(words[3]):
            return words[0], words[1], words[2], float(words[3])
    return None


def _search(line: bytes) -> list[Record]:
    """Whole records within a line that is none itself."""
    found = (_parse(match.group()) for match in _INSIDE.finditer(line))
    return [record for record in found if record is not None]
