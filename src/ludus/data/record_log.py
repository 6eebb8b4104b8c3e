"""What a service writes so that its state survives the death of its process: a log of what happened, and snapshots.

    00000041.snapshot     all that was there when log 41 was started
    00000041.log          what has happened since
    lock                  held by the process that writes here

A record is a nest, with its length and a checksum, written by one call before the service answers: so what was answered
is in the kernel's hands, which survives kill -9 (not a power cut). Each process starts a log of its own. When a log has
grown, the next one is started at once, and a thread writes the snapshot that belongs to it; records are written as
before while it does. Then what is older is removed. Whenever the process is killed, the newest complete snapshot and
the logs from its number on are all that is needed.

A damaged record is left out, and those behind it are read. Where its length is damaged, too, nobody knows where the
next one begins: the rest of the file is left out.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ludus import errors, files
from ludus.data import codec
from ludus.data.nest import Nest

__all__ = ["RecordLog"]

_LOG = logging.getLogger(__name__)
_HEAD = struct.Struct("<III")  # bytes after this head, their CRC-32, number of frames
_SIZE = struct.Struct("<Q")
_LIMITS = codec.Limits(max_depth=72, max_leaves=1 << 40, max_bytes=1 << 40)
_MAX_VECTORS = 512
_END = {"do": "end"}
_LOST = {"do": "lost"}
_CLOSE_S = 60.0


class RecordLog:
    """Used under the lock of its owner. `read` first, then `start`. `head` is the first record of every log.

    Records are dicts, and `record["do"]` says what was done; "end" and "lost" are the log's own.
    """

    def __init__(self, folder: Path, *, head: Nest, owner: str = "buffer", segment_bytes: int = 64 << 20) -> None:
        files.make_folder(folder)
        self.folder = folder
        self._held = contextlib.ExitStack()
        refusal = f"another process keeps its {owner} in {folder}; this one cannot. Stop that, or use another folder."
        self._held.enter_context(files.hold(folder / "lock", refusal=refusal))
        self._head = head
        self._segment_bytes = segment_bytes
        self._number = max([*self._numbers("log"), *self._numbers("snapshot")], default=0)
        self._fd = -1
        self._size = 0
        self._snapshot_size = 0
        self._snapshot: threading.Thread | None = None

    # -- reading

    def read(self) -> Iterator[Nest]:
        """All records that are needed, from the newest complete snapshot on. Where some are lost, `{"do": "lost"}`."""
        files.remove_parts(self.folder)
        first = 0
        logs, snapshots = sorted(self._numbers("log")), sorted(self._numbers("snapshot"))
        for number in reversed(snapshots):
            path = self._path(number, "snapshot")
            records = list(_records(path))
            kinds = [record["do"] for record in records]
            is_whole = kinds[-1:] == ["end"] and "lost" not in kinds
            if is_whole or (number == snapshots[0] and not any(log < number for log in logs)):
                yield from (record for record in records if record["do"] not in ("end", "lost"))
                if not is_whole:
                    _LOG.warning("%s is damaged, and nothing older is there; what can be read of it is used", path)
                    yield _LOST
                first = number
                break
            _LOG.warning("%s is damaged; an older one is used", path)
        for number in logs:
            if number >= first:
                yield from _records(self._path(number, "log"))

    def _numbers(self, suffix: str) -> list[int]:
        return [int(path.stem) for path in self.folder.glob(f"*.{suffix}") if path.stem.isdigit()]

    def _path(self, number: int, suffix: str) -> Path:
        return self.folder / f"{number:08d}.{suffix}"

    # -- writing

    def start(self) -> None:
        """Go on in a new log. Raises `OSError` if it cannot be written; then the one before goes on."""
        path = self._path(self._number + 1, "log")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, files.PRIVATE)
        try:
            size = _append(fd, self._head)
        except BaseException:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._number, self._fd, self._size = self._number + 1, fd, size

    def append(self, record: Nest) -> None:
        """Once this returns, the record survives the process. Raises `OSError`; then nothing of it is there."""
        self._size += _append(self._fd, record)

    @property
    def is_grown(self) -> bool:
        """Whether it is time for `take_snapshot`."""
        # A snapshot is written when as much was logged: so writing them costs no more than the log does.
        return self._size > max(self._segment_bytes, self._snapshot_size) and not self.is_writing_snapshot

    @property
    def is_writing_snapshot(self) -> bool:
        return self._snapshot is not None and self._snapshot.is_alive()

    def take_snapshot(self, records: Iterable[Nest]) -> None:
        """Start the next log, and have a thread write `records`, the present state, as its snapshot.

        What they refer to must not change. If the next log cannot be written, this one grows on.
        """
        self.wait()
        try:
            self.start()
        except OSError as error:
            _LOG.error("no log could be started in %s, so the last one is kept and grows: %s", self.folder, error)
            self._snapshot_size = 2 * self._size  # and then it is tried again
            return
        self._snapshot = threading.Thread(
            target=self._write_snapshot, args=(self._number, records), name="snapshot-of-log", daemon=True
        )
        self._snapshot.start()

    def _write_snapshot(self, number: int, records: Iterable[Nest]) -> None:
        part = self.folder / f".{number:08d}.snapshot.{os.getpid()}.part"
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, files.PRIVATE)
            try:
                self._snapshot_size = sum(_append(fd, record) for record in itertools.chain(records, [_END]))
            finally:
                os.close(fd)
            files.move(part, self._path(number, "snapshot"), durable=False)
        except OSError as error:
            _LOG.error("no snapshot could be written in %s, so its logs are kept and grow: %s", self.folder, error)
            part.unlink(missing_ok=True)
            return
        for suffix in ("log", "snapshot"):
            for each in self._numbers(suffix):
                if each < number:
                    self._path(each, suffix).unlink(missing_ok=True)

    def wait(self) -> None:
        """Until the snapshot that is being written is."""
        if self._snapshot is not None:
            self._snapshot.join(_CLOSE_S)

    def close(self) -> None:
        """Twice is fine."""
        self.wait()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._held.close()


def _append(fd: int, record: Nest) -> int:
    frames = [memoryview(frame).cast("B") for frame in codec.encode(record, limits=_LIMITS)]
    sizes = b"".join(_SIZE.pack(frame.nbytes) for frame in frames)
    crc = zlib.crc32(sizes)
    for frame in frames:
        crc = zlib.crc32(frame, crc)
    length = len(sizes) + sum(frame.nbytes for frame in frames)
    if length >= 1 << 32:
        raise errors.DataError(f"a record of {length} bytes is past 4 GB")
    parts: list[bytes | memoryview] = [_HEAD.pack(length, crc, len(frames)), sizes, *frames]
    total = length + _HEAD.size
    written = 0
    try:
        while parts:
            count = os.writev(fd, parts[:_MAX_VECTORS])
            written += count
            while parts and count >= len(parts[0]):
                count -= len(parts.pop(0))
            if count:
                parts[0] = memoryview(parts[0])[count:]
    except OSError:
        os.ftruncate(fd, os.fstat(fd).st_size - written)
        raise
    return total


def _records(path: Path) -> Iterator[Nest]:
    """`_LOST` in the place of damaged ones, and of a torn end."""
    with path.open("rb") as file:
        end = os.fstat(file.fileno()).st_size
        while head := file.read(_HEAD.size):
            start = file.tell() - len(head)
            length, crc, num_frames = _HEAD.unpack(head) if len(head) == _HEAD.size else (end, 0, 0)
            if file.tell() + length > end:
                _LOG.warning("%s: its last %d bytes are torn or damaged, and left out", path, end - start)
                yield _LOST
                return
            body = file.read(length)
            try:
                if zlib.crc32(body) != crc:
                    raise errors.DataError("its checksum is another")
                record = codec.decode(_frames(body, num_frames), limits=_LIMITS)
            except (errors.DataError, struct.error) as error:
                num_bytes = len(head) + length
                _LOG.warning(
                    "%s: %d bytes from %d on are torn or damaged, and left out: %s", path, num_bytes, start, error
                )
                record = _LOST
            yield record


def _frames(body: bytes, num_frames: int) -> list[memoryview]:
    frames, start = [], num_frames * _SIZE.size
    for number in range(num_frames):
        (size,) = _SIZE.unpack_from(body, number * _SIZE.size)
        frames.append(memoryview(body)[start : start + size])
        start += size
    return frames
