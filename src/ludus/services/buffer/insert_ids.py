"""Which inserts a replay store has seen. With a file, the next process knows them, too.

A line is written before the items of an insert are, and says which keys they get. It counts once the store has
committed these keys: so an insert is seen exactly if its items are there, wherever the process was killed.
"""

from __future__ import annotations

import errno
import logging
import os
import zlib
from pathlib import Path

from ludus import files
from ludus.services.buffer.seen_segments import SeenSegments

__all__ = ["InsertIds"]

_LOG = logging.getLogger(__name__)
_MAX_BYTES = 8 << 20


class InsertIds:
    """`num_items`: how many items were committed by earlier processes."""

    def __init__(self, path: Path | None = None, *, num_items: int = 0, max_bytes: int = _MAX_BYTES) -> None:
        self._seen = SeenSegments()
        self._path = path
        self._max_bytes = max_bytes
        self._fd = -1
        if path is not None:
            self._read(path, num_items)
            self._rewrite(path)

    def __contains__(self, insert_id: str) -> bool:
        return self._seen.has(insert_id)

    def prepare(self, insert_id: str, first_key: int, num: int) -> None:
        """Before the items are written. Raises `OSError` if it cannot be noted."""
        if self._path is None:
            return
        line = _line(insert_id, first_key + num)
        if os.write(self._fd, line) != len(line):  # what a full disk does to the last line that fits in part
            os.ftruncate(self._fd, self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._size += len(line)

    def add(self, insert_id: str) -> None:
        """The items are there."""
        self._seen.add(insert_id)
        if self._path is not None and self._size > self._max_bytes:
            self._rewrite(self._path)

    def _read(self, path: Path, num_items: int) -> None:
        if not path.exists():
            return
        for line in path.read_bytes().splitlines():
            crc, _, rest = line.partition(b" ")
            end, _, insert_id = rest.partition(b" ")
            if crc != b"%08x" % zlib.crc32(rest):
                _LOG.warning("%s: a torn line is left out", path)
            elif int(end) <= num_items:
                self._seen.add(insert_id.decode())

    def _rewrite(self, path: Path) -> None:
        """With the ids that are still needed: the last ones of each producer."""
        content = b"".join(_line(insert_id, 0) for insert_id in self._seen.ids())
        files.replace(path, [content], mode=files.PRIVATE, durable=False)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = len(content)
        self._max_bytes = max(self._max_bytes, 4 * len(content))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _line(insert_id: str, end_key: int) -> bytes:
    rest = b"%d %s" % (end_key, insert_id.encode())
    return b"%08x %s\n" % (zlib.crc32(rest), rest)
