"""Memory that a caller and a server on one host share: where large frames travel, and where started calls are marked.

The server makes one anonymous file (memfd) for each connection and hands it to the caller; it has no name, so nothing
is left behind when both are gone, and it outlives either of them for as long as the other lives. Layout:

    marks         1024 × u64   the server writes seq in the call's slot before it runs it
    flags up      1024 × u8    1 while the server may still read that block of `up`
    flags down    1024 × u8    1 while the caller may still read that block of `down`
    control       u8, u8       the caller's slot is full; the caller is awake (see `mailbox`)
    slots         2 × 64 KB    one message up, one down
    up            frames from caller to server
    down          frames from server to caller

A sender allocates blocks first-fit from the bottom, so the same few pages stay in the cache, and copies a frame in
once; the receiver reads it in place and clears the block's flag when the last view of it is dropped. Pages are taken
from the system when first touched. When no block is free the frame goes through the socket instead.
"""

from __future__ import annotations

import bisect
import mmap
import os
import struct
import weakref

import numpy as np

from ludus.rpc.mailbox import SLOT_BYTES, Slot
from ludus.rpc.transport import Buffer

__all__ = ["CALL_WINDOW", "MIN_SHARED_BYTES", "SHARED", "Arena", "InSide", "OutSide"]

CALL_WINDOW = 1024
"""How many calls one caller may have on the way at once: one mark for each."""
MIN_SHARED_BYTES = 65536
"""Smaller frames go through the socket."""
DEFAULT_SIDE_BYTES = 64 << 20

_BLOCKS = 1024
_ALIGN = 64
_FLAGS_UP = CALL_WINDOW * 8
_FLAGS_DOWN = _FLAGS_UP + _BLOCKS
_CONTROL = _FLAGS_DOWN + _BLOCKS
_SLOT_UP = _CONTROL + 2048  # on a page boundary
_SLOT_DOWN = _SLOT_UP + SLOT_BYTES
_DATA = _SLOT_DOWN + SLOT_BYTES
_MARK = struct.Struct("<Q")

# A table entry from here up is a shared frame: 1 | block (10 bits) | offset / 64 (21 bits) | length (32 bits)
SHARED = 1 << 63


class OutSide:
    """The sending half: copies frames in."""

    def __init__(self, memory: mmap.mmap, *, flags: int, start: int, size: int) -> None:
        self._flags = memoryview(memory)[flags : flags + _BLOCKS]
        self._data = memoryview(memory)[start : start + size]
        self._size = size
        self._taken: list[tuple[int, int, int]] = []  # (start, end, block), sorted
        self._blocks = list(range(_BLOCKS - 1, -1, -1))

    def put(self, frame: memoryview) -> int | None:
        """Copy `frame` in; its table entry, or `None` when there is no room."""
        length = frame.nbytes
        placed = self._place(length)
        if placed is None:
            return None
        start, block = placed
        self._data[start : start + length] = frame
        self._flags[block] = 1
        return SHARED | block << 53 | (start // _ALIGN) << 32 | length

    def _place(self, length: int) -> tuple[int, int] | None:
        flags = self._flags
        if self._taken:
            kept = []
            for taken in self._taken:
                if flags[taken[2]]:
                    kept.append(taken)
                else:
                    self._blocks.append(taken[2])
            self._taken = kept
        room = -(-length // _ALIGN) * _ALIGN
        start = 0
        for taken in self._taken:
            if taken[0] - start >= room:
                break
            start = taken[1]
        if start + room > self._size or length >= 1 << 32 or not self._blocks:
            return None
        block = self._blocks.pop()
        bisect.insort(self._taken, (start, start + room, block))
        return start, block


class InSide:
    """The receiving half: frames in place."""

    def __init__(self, memory: mmap.mmap, *, flags: int, start: int, size: int) -> None:
        self._memory = memory
        self._flags_at = flags
        self._start = start
        self._size = size
        self._lent: dict[int, weakref.ref[np.ndarray]] = {}

    def take(self, entry: int) -> Buffer | None:
        """The frame of a table entry, or `None` when the entry points outside the memory."""
        block = entry >> 53 & (_BLOCKS - 1)
        start = (entry >> 32 & 0x1FFFFF) * _ALIGN
        length = entry & 0xFFFFFFFF
        if start + length > self._size:
            return None
        frame: np.ndarray = np.frombuffer(self._memory, np.uint8, length, self._start + start)
        memory, flag, lent = self._memory, self._flags_at + block, self._lent

        def give_back(_ref: object) -> None:
            memory[flag] = 0
            lent.pop(block, None)

        lent[block] = weakref.ref(frame, give_back)
        return memoryview(frame)  # type: ignore[arg-type]


class Arena:
    """One connection's shared memory, seen from one of its ends."""

    def __init__(self, fd: int, *, is_server: bool, board: mmap.mmap, index: int) -> None:
        """Takes over `fd`. `index` is the caller's place on the server's board; 0 means that it has none."""
        size = os.fstat(fd).st_size
        try:
            self._memory = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        side = (size - _DATA) // 2
        up = {"flags": _FLAGS_UP, "start": _DATA, "size": side}
        down = {"flags": _FLAGS_DOWN, "start": _DATA + side, "size": side}
        self.outside = OutSide(self._memory, **(down if is_server else up))
        self.inside = InSide(self._memory, **(up if is_server else down))
        self.slot_up: Slot | None = None
        self.slot_down: Slot | None = None
        if index:
            own = self._memory
            self.slot_up = Slot(own, _SLOT_UP, full=(board, index), awake=(board, 0))
            self.slot_down = Slot(own, _SLOT_DOWN, full=(own, _CONTROL), awake=(own, _CONTROL + 1))

    @staticmethod
    def make(side_bytes: int = DEFAULT_SIDE_BYTES) -> int:
        """A new memory's file descriptor."""
        fd = os.memfd_create("ludus-arena", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, _DATA + 2 * side_bytes)
        except OSError:
            os.close(fd)
            raise
        return fd

    @staticmethod
    def is_valid_size(size: int) -> bool:
        return size > _DATA

    def mark(self, slot: int, seq: int) -> None:
        _MARK.pack_into(self._memory, slot * 8, seq)

    def is_marked(self, slot: int, seq: int) -> bool:
        return bool(_MARK.unpack_from(self._memory, slot * 8)[0] == seq)
