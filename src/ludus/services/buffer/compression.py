"""Items in less memory: their large frames compressed by zlib, the others as they are."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from ludus.data import codec
from ludus.data.nest import Nest

__all__ = ["MIN_BYTES", "Compressed", "compress", "decompress"]

MIN_BYTES = 1024
"""Smaller frames are not worth it."""
_LEVEL = 1


@dataclass(frozen=True)
class Compressed:
    """Frames of the codec. `sizes` has the size of each that is compressed, 0 of the others."""

    frames: Sequence[bytes]
    sizes: Sequence[int]

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.frames))


def compress(nest: Nest) -> Compressed:
    """A copy of the nest. Raises `CodecError` for what the codec does not know."""
    frames: list[bytes] = []
    sizes: list[int] = []
    for frame in codec.encode(nest):
        size = memoryview(frame).nbytes
        packed = zlib.compress(frame, _LEVEL) if size >= MIN_BYTES else b""
        is_smaller = 0 < len(packed) < size
        frames.append(packed if is_smaller else bytes(frame))
        sizes.append(size if is_smaller else 0)
    return Compressed(frames, sizes)


def decompress(item: Compressed) -> Nest:
    """The nest. Its arrays are writable where they were compressed."""
    pairs = zip(item.frames, item.sizes, strict=True)
    return codec.decode([bytearray(zlib.decompress(frame, bufsize=size)) if size else frame for frame, size in pairs])
