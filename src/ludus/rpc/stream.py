"""Messages on a byte stream: a table of frames, then the small frames themselves; large ones lie in shared memory.

    u32 body bytes │ u32 frames │ frames × u64 │ body: the inline frames, each padded to 8 bytes

A table entry with its top bit clear is an inline frame's length; with it set, a block of the arena (see `arena`).
"""

from __future__ import annotations

import socket
import struct

import numpy as np

from ludus.rpc.arena import MIN_SHARED_BYTES, SHARED, InSide, OutSide
from ludus.rpc.transport import Buffer, ChannelClosed, Frames, PeerGone

__all__ = ["DOORBELL", "Intake", "Reader", "pack"]

DOORBELL = bytes(8)
"""Read and forgotten; it only wakes the other end, so that it looks into its slot."""
_HEAD = struct.Struct("<II")
_PAD = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")
_TABLES = {n: struct.Struct(f"<II{n}Q") for n in range(1, 17)}
_ENTRIES = {n: struct.Struct(f"<{n}Q") for n in range(1, 17)}
_JOIN_BYTES = 4096
_MAX_BUFFERS = 128  # a system call takes 1,024 at most
_BUFFER_BYTES = 128 << 10
_AT_ONCE_BYTES = 16 << 20
"""What is set aside for a message as soon as its size is known; more only when so much of it has come."""


def pack(frames: Frames, arena: OutSide | None) -> tuple[list[Buffer], int]:
    """The buffers to write, in order, for one message, and their bytes in all."""
    table: list[int] = []
    body: list[Buffer] = [b""]
    size = 0
    for frame in frames:
        length = frame.nbytes if type(frame) is memoryview else len(frame)
        if length >= MIN_SHARED_BYTES and arena is not None:
            entry = arena.put(memoryview(frame).cast("B"))
            if entry is not None:
                table.append(entry)
                continue
        table.append(length)
        body.append(frame)
        pad = length & 7
        if pad:
            body.append(_PAD[pad])
            size += 8 - pad
        size += length
    n = len(table)
    body[0] = head = (_TABLES.get(n) or struct.Struct(f"<II{n}Q")).pack(size, n, *table)
    size += len(head)
    if size < _JOIN_BYTES or len(body) > _MAX_BUFFERS:
        return [b"".join(body)], size
    return [buffer for buffer in body if buffer], size


class Intake:
    """How many bytes of large messages that have yet to become whole all readers of a listener may hold together."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0

    def add(self, count: int) -> None:
        if self.num_bytes + count > self.max_bytes:
            raise ChannelClosed(
                f"more than {self.max_bytes} bytes of messages that are not whole yet; this one is given up"
            )
        self.num_bytes += count


class Reader:
    """The receiving end of one stream.

    Limits are checked before anything is allocated, and what the other end only says that it will send is not: memory
    grows with the bytes that have come.
    """

    def __init__(
        self, sock: socket.socket, arena: InSide | None, *, max_bytes: int, intake: Intake | None = None
    ) -> None:
        self._sock = sock
        self._arena = arena
        self._max_bytes = max_bytes
        self._intake = intake or Intake(max_bytes)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0
        self._large: memoryview | None = None  # a message too large for the buffer, being filled
        self._filled = 0
        self._total = 0

    def read(self, flags: int = 0) -> list[Frames]:
        """One read from the socket, and the messages it completed.

        Raises `BlockingIOError` when there is nothing, `PeerGone` at its end, `ChannelClosed` when it makes no sense.
        """
        if self._large is not None:
            return self._read_large(flags)
        buffer = self._buffer
        count = self._sock.recv_into(self._view[self._end :] if self._end else buffer, 0, flags)
        if count == 0:
            raise PeerGone("the other end is gone")
        end = self._end + count
        messages: list[Frames] = []
        start = 0
        while end - start >= 8:
            size, num_frames = _HEAD.unpack_from(buffer, start)
            total = 8 + 8 * num_frames + size
            if total == 8:  # a doorbell
                start += 8
                continue
            if not num_frames or total > self._max_bytes:
                raise ChannelClosed(f"malformed message, or one of {total} bytes where {self._max_bytes} are allowed")
            if end - start < total:
                if total > _BUFFER_BYTES:
                    self._begin_large(total, self._view[start:end])
                    return messages
                break
            messages.append(self._frames(memoryview(bytearray(self._view[start : start + total])), num_frames))
            start += total
        rest = end - start
        if rest and start:
            buffer[:rest] = buffer[start:end]
        self._end = rest
        return messages

    def unpack(self, message: memoryview) -> Frames:
        """The frames of one message that came whole, through a slot."""
        size, num_frames = _HEAD.unpack_from(message)
        if not num_frames or 8 + 8 * num_frames + size != message.nbytes:
            raise ChannelClosed("malformed message in the slot")
        return self._frames(message, num_frames)

    def _begin_large(self, total: int, first: memoryview) -> None:
        self._intake.add(first.nbytes)
        self._large = _allocate(min(total, _AT_ONCE_BYTES))
        self._large[: first.nbytes] = first
        self._filled, self._total, self._end = first.nbytes, total, 0

    def _read_large(self, flags: int) -> list[Frames]:
        large = self._large
        assert large is not None
        if self._filled == large.nbytes:  # all of what was set aside has come, and it is not the end
            self._large = _allocate(min(self._total, 2 * large.nbytes))
            self._large[: self._filled] = large
            large = self._large
        count = self._sock.recv_into(large[self._filled :], 0, flags)
        if count == 0:
            raise PeerGone("the other end is gone in the middle of a message")
        self._intake.add(count)
        self._filled += count
        if self._filled < self._total:
            return []
        self.close()
        return [self._frames(large, _HEAD.unpack_from(large)[1])]

    def close(self) -> None:
        """Forget the message that is not whole yet."""
        if self._large is not None:
            self._intake.num_bytes -= self._filled
            self._large = None

    def _frames(self, message: memoryview, num_frames: int) -> Frames:
        frames: list[Buffer] = []
        at = 8 + 8 * num_frames
        entries = _ENTRIES.get(num_frames) or struct.Struct(f"<{num_frames}Q")
        for entry in entries.unpack_from(message, 8):
            if entry >= SHARED:
                frame = self._arena.take(entry) if self._arena is not None else None
                if frame is None:
                    raise ChannelClosed("a frame points outside the shared memory")
                frames.append(frame)
                continue
            end = at + entry
            if end > message.nbytes:
                raise ChannelClosed("a frame reaches past its message")
            frames.append(message[at:end])
            at = end + 7 & ~7
        return frames


def _allocate(size: int) -> memoryview:
    """Memory that is not written to, so the system gives its pages when the bytes come."""
    return memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]
