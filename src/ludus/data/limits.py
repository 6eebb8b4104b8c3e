"""What a decoder is willing to take, and the look at a header that comes before anything is built."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from ludus.data.fault import Fault

__all__ = ["DEFAULT_LIMITS", "SAFE_DEPTH", "Limits", "check_header"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on one message, the same for the sender and the receiver.

    `max_depth`: containers inside containers; a `Batch` counts as two. `max_leaves`: values in all containers
    together, inner containers included, keys not. `max_bytes`: all frames together; an array with a zero in its
    shape counts as if the zero were a one, so that absurd shapes are refused although they hold nothing.
    """

    max_depth: int = 64
    max_leaves: int = 100_000
    max_bytes: int = 1 << 30


DEFAULT_LIMITS = Limits()

# The decoder recurses on the C stack up to the interpreter's limit, which a program may have raised far beyond what
# the stack can take. So many levels it can always take.
SAFE_DEPTH = 4096

# MessagePack's first byte → (bytes of length field, bytes before the payload): what is skipped as a whole.
_SIZED = {
    **{0xC4 + i: (1 << i, 0) for i in range(3)},  # bin
    **{0xC7 + i: (1 << i, 1) for i in range(3)},  # ext
    **{0xD9 + i: (1 << i, 0) for i in range(3)},  # str
}
# First byte → payload bytes, for what has no length field.
_FIXED = {
    **dict.fromkeys([*range(0x80), 0xC0, 0xC2, 0xC3, *range(0xE0, 0x100)], 0),
    **{0xA0 + i: i for i in range(32)},  # fixstr
    **{0xCA: 4, 0xCB: 8},  # float
    **{0xCC + i: 1 << i for i in range(4)},  # uint
    **{0xD0 + i: 1 << i for i in range(4)},  # int
    **{0xD4 + i: 1 + (1 << i) for i in range(5)},  # fixext
}
# First byte → (bytes of length field, tokens per element).
_CONTAINERS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def check_header(header: bytes | memoryview, limits: Limits) -> None:
    """Raise `Fault` if MessagePack holds more values than `max_leaves` or is deeper than `max_depth`.

    Builds nothing. Every value and every level takes a byte at least, so a short header needs no look. Malformed
    ones are left to the decoder.
    """
    size = len(header)
    if size <= limits.max_leaves and (size <= SAFE_DEPTH or sys.getrecursionlimit() <= SAFE_DEPTH):
        return
    position, count = 0, 1
    pending = [1]  # tokens to come, level by level
    while pending and position < size:
        if pending[-1] == 0:
            pending.pop()
            continue
        pending[-1] -= 1
        op = header[position]
        position += 1
        if (fixed := _FIXED.get(op)) is not None:
            position += fixed
            continue
        if op in _SIZED:
            width, extra = _SIZED[op]
            position += width + extra + int.from_bytes(header[position : position + width], "big")
            continue
        if 0x80 <= op < 0xA0:
            length, tokens = op & 0x0F, 2 if op < 0x90 else 1
        elif op in _CONTAINERS:
            width, tokens = _CONTAINERS[op]
            length = int.from_bytes(header[position : position + width], "big")
            position += width
        else:
            return
        count += length
        pending.append(length * tokens)
        if count > limits.max_leaves:
            raise Fault(
                f"the message holds more than {limits.max_leaves} values, so it was refused. Put numbers into "
                "arrays, or raise `max_leaves` on both sides."
            )
        if len(pending) > limits.max_depth + 1:
            raise Fault("nested deeper than `max_depth` allows")
