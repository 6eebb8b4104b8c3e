"""A message through memory alone: the way of a small call between two processes that are both awake.

Each end of a connection has one slot for the other to write into. A sender uses it when it is empty and the receiver is
awake; otherwise the socket. Writing a slot is a copy and a flag, without a system call. The flags of all callers of one
server lie side by side on a board, so that it sees with one look whether anybody wrote.

A receiver that falls asleep clears its `awake` flag and then looks once more; a sender that has written looks at the
flag once more and, when it finds it cleared, rings through the socket. The second to come sees what the first did:
between its store and its look each passes a full memory fence (`with self._fence: pass`; taking a lock is an atomic
read-modify-write).
"""

from __future__ import annotations

import mmap
import os
import platform
import struct
import threading
from collections.abc import Callable

from ludus.rpc.transport import Buffer

__all__ = ["SLOT_BYTES", "Board", "Slot", "is_supported"]

SLOT_BYTES = 64 << 10
"""Of which 8 are the message's length."""

_LENGTH = struct.Struct("<Q")
_FULL = b"\1"
is_supported = platform.machine() in ("x86_64", "AMD64")
"""On x86 stores are seen in order, and taking a lock is a full fence; elsewhere everything goes through the socket."""


class Slot:
    """Room for one message. `full` and `awake` are the flags' places: a memory and an index each."""

    def __init__(
        self, memory: mmap.mmap, at: int, *, full: tuple[mmap.mmap, int], awake: tuple[mmap.mmap, int]
    ) -> None:
        self._memory = memory
        self._view = memoryview(memory)[at + 8 : at + SLOT_BYTES]
        self._at = at
        self._full, self._full_at = full
        self._awake, self._awake_at = awake
        self._fence = threading.Lock()

    def put(self, buffers: list[Buffer], size: int, ring: Callable[[], None]) -> bool:
        """Write a message for the other end, if it is awake and has read the one before."""
        if size > SLOT_BYTES - 8 or not self._awake[self._awake_at] or self._full[self._full_at]:
            return False
        at = 0
        for buffer in buffers:
            end = at + (buffer.nbytes if type(buffer) is memoryview else len(buffer))
            self._view[at:end] = buffer
            at = end
        _LENGTH.pack_into(self._memory, self._at, size)
        self._full[self._full_at] = 1
        with self._fence:
            pass
        if not self._awake[self._awake_at]:
            ring()
        return True

    def is_full(self) -> int:
        return self._full[self._full_at]

    def take(self) -> memoryview | None:
        """A copy of the message that the other end wrote; the slot is free again."""
        (size,) = _LENGTH.unpack_from(self._memory, self._at)
        message = None if size > SLOT_BYTES - 8 else memoryview(bytearray(self._view[:size]))
        self._full[self._full_at] = 0
        return message

    def wake_up(self) -> None:
        """For the reader of this slot: from now on it looks here before it sleeps."""
        self._awake[self._awake_at] = 1

    def fall_asleep(self) -> bool:
        """For the reader of this slot: false if there is a message, and it had better not sleep."""
        self._awake[self._awake_at] = 0
        with self._fence:
            pass
        return not self._full[self._full_at]


class Board:
    """A server's flags: byte 0 says that it is awake, byte i that caller i has written."""

    SIZE = 4096

    def __init__(self) -> None:
        self.fd = os.memfd_create("ludus-board", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, self.SIZE)
        self.memory = mmap.mmap(self.fd, self.SIZE)
        self.memory[0] = 1
        self._fence = threading.Lock()
        self._readers: dict[int, Callable[[], None]] = {}
        self._free = list(range(self.SIZE - 1, 0, -1))
        self._end = 1

    def enter(self, reader: Callable[[], None]) -> int:
        """A place for a new caller, whose messages `reader` takes; 0 when there is none."""
        if not is_supported or not self._free:
            return 0
        index = self._free.pop()
        self._readers[index] = reader
        self._end = max(self._end, index + 1)
        return index

    def leave(self, index: int) -> None:
        if self._readers.pop(index, None) is not None:
            self.memory[index] = 0
            self._free.append(index)

    def has_mail(self) -> bool:
        return self.memory.find(_FULL, 1, self._end) > 0

    def read(self) -> bool:
        """Have every message on the board taken; says whether there was any."""
        index = self.memory.find(_FULL, 1, self._end)
        if index < 0:
            return False
        while index > 0:
            reader = self._readers.get(index)
            if reader is None:
                self.memory[index] = 0
            else:
                reader()
            index = self.memory.find(_FULL, index + 1, self._end)
        return True

    def fall_asleep(self) -> bool:
        """False if there is mail, and the server had better not sleep."""
        self.memory[0] = 0
        with self._fence:
            pass
        return not self.has_mail()

    def wake_up(self) -> None:
        self.memory[0] = 1

    def close(self) -> None:
        os.close(self.fd)
