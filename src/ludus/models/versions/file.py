"""A version of a model: what is known of it, and the one file that holds it.

    magic, format, number of frames │ frames × (offset, length) │ header │ memory of each array, aligned to 64 bytes

The header is the first frame of `ludus.data.encode`, the others are the arrays' own memory, so a file that is mapped
into memory is read without a copy, and all readers of a host share the pages.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ludus import data, errors
from ludus.data.digest import digest as digest_of
from ludus.data.nest import Nest

__all__ = ["Version", "check_weights", "read_file", "write_file"]

_MAGIC, _FORMAT = b"LUDUSWTS", 1
_HEAD = struct.Struct("<8sII")  # magic, format, number of frames
_ENTRY = struct.Struct("<QQ")  # where a frame begins, its bytes
_ALIGN = 64
_LIMITS = data.Limits(max_leaves=10_000_000, max_bytes=1 << 40)
_NUM_VERIFIED = 1024

_verified: OrderedDict[tuple[int, int, int, int], None] = OrderedDict()
"""Files that this process has found valid: device, inode, time of change, bytes. The oldest are forgotten."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One immutable set of weights. Two with the same digest are the same, byte for byte."""

    model: str
    number: int
    digest: str  # of the weights, `ludus.data.digest`
    nbytes: int  # of the weights
    created: float  # seconds since 1970

    def to_nest(self) -> dict[str, Nest]:
        return asdict(self)

    @classmethod
    def from_nest(cls, nest: Nest) -> Version:
        return cls(**nest)


def write_file(file: BinaryIO, version: Version, weights: Mapping[str, NDArray[Any]]) -> None:
    """Write a version to a new file. It is whole only once this has returned."""
    frames = data.encode({"version": version.to_nest(), "weights": dict(weights)}, limits=_LIMITS)
    at = _HEAD.size + _ENTRY.size * len(frames)
    table = []
    for frame in frames:
        at = -(-at // _ALIGN) * _ALIGN
        table.append((at, size := data.nbytes([frame])))
        at += size
    file.write(_HEAD.pack(_MAGIC, _FORMAT, len(frames)))
    for entry in table:
        file.write(_ENTRY.pack(*entry))
    for (start, _size), frame in zip(table, frames, strict=True):
        file.write(bytes(start - file.tell()))
        file.write(frame)


def read_file(path: Path, *, private: bool = False, check: bool = True) -> tuple[Version, dict[str, NDArray[Any]]]:
    """A version and its arrays, which are read-only views of the mapped file and outlive its name.

    With `check`, the digest is computed and compared, once for each file in a process: 0.7 ms for each megabyte.

    With `private` they can be written to, for libraries that ask for it: pages are shared with all other readers until
    one is written, and what is written is seen by nobody else. Raises `FileNotFoundError`, and `DataError` for a file
    that is not a whole version.
    """
    access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size < _HEAD.size:
            raise errors.DataError(f"{path} is not a version of a model: it is too short")
        memory = memoryview(mmap.mmap(file.fileno(), 0, access=access))
    magic, form, num_frames = _HEAD.unpack_from(memory)
    if magic != _MAGIC or form != _FORMAT:
        raise errors.DataError(f"{path} is not a version of a model that this Ludus can read")
    try:
        entries = [_ENTRY.unpack_from(memory, _HEAD.size + _ENTRY.size * i) for i in range(num_frames)]
        if any(start + size > memory.nbytes for start, size in entries):
            raise errors.DataError("it is cut off")
        content = data.decode([memory[start : start + size] for start, size in entries], limits=_LIMITS)
        version, weights = Version.from_nest(content["version"]), content["weights"]
        if not path.name.startswith(f"{version.number:09d}-{version.digest[:12]}."):
            raise errors.DataError("it says that it is another version than its name does")
        stamp = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        if check and stamp not in _verified:
            if digest_of(weights) != version.digest:
                raise errors.DataError(f"its digest is not {version.digest[:12]}")
            _verified[stamp] = None
            if len(_verified) > _NUM_VERIFIED:
                _verified.popitem(last=False)
        return version, weights
    except (struct.error, errors.DataError, KeyError, TypeError, ValueError) as error:
        raise errors.DataError(f"{path} is torn or altered ({error})") from None


def check_weights(weights: Mapping[str, NDArray[Any]]) -> int:
    """The bytes of all arrays. Raises `DataError` unless these are arrays by name.

    NumPy's scalars are arrays, too: arithmetic on an array without axes gives them.
    """
    if not isinstance(weights, Mapping):
        raise errors.DataError(f"weights are NumPy arrays by name; these are a {type(weights).__name__}")
    for name, array in weights.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray | np.generic):
            raise errors.DataError(f"weights are NumPy arrays by name; {name!r} is a {type(array).__name__}")
    return sum(array.nbytes for array in weights.values())
