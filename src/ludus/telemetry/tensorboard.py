"""TensorBoard event files of scalars, written without TensorBoard.

Nothing is imported for it, so no run waits for it and every trial has events, whether TensorBoard is installed or not:
importing its `EventFileWriter` takes 0.35 s, `torch.utils.tensorboard` half a second more than torch, their protocol
buffers alone 0.05 s. The little that is needed of them is below.
https://github.com/tensorflow/tensorboard/tree/master/tensorboard/compat/proto

A file is a row of records: length, checksum of the length, an `Event`, checksum of the event.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["EventFile"]

_POLYNOMIAL = 0x82F63B78  # CRC-32C
_MASK_DELTA = 0xA282EAD8
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")

# Tags of protocol buffers: the field's number << 3 | how it is written.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = b"\x09", b"\x10", b"\x1a", b"\x2a", b"\x3a"  # of Event
_VALUE = b"\x0a"  # of Summary
_TAG, _SIMPLE_VALUE = b"\x0a", b"\x15"  # of Summary.Value
_SESSION_START = b"\x08\x01"  # SessionLog(status=START)


class EventFile:
    """One event file, made when it is first written to. A kill loses nothing that was written.

    `purge_step`: TensorBoard forgets what other files of the folder say of this step and later ones.
    """

    def __init__(self, folder: Path, *, purge_step: int | None = None) -> None:
        self._folder = folder
        self._purge_step = purge_step
        self._file: int | None = None

    def write(self, step: int, scalars: Mapping[str, float], *, time_s: float | None = None) -> None:
        """All scalars of one step, as one event."""
        when = time.time() if time_s is None else time_s
        summary = b"".join(_field(_VALUE, _scalar(tag, value)) for tag, value in scalars.items())
        records = _record(_event(when, step, _field(_SUMMARY, summary)))
        if self._file is None:
            records = self._open(when) + records
        assert self._file is not None
        try:
            written = os.write(self._file, records)
        except OSError:
            written = -1
            raise
        finally:
            if written != len(records):  # nothing can be read after a torn record: the next one begins another file
                self.close()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, when: float) -> bytes:
        """Make the file. Returns the records it begins with."""
        self._folder.mkdir(parents=True, exist_ok=True)
        stem = f"events.out.tfevents.{int(when):010d}.{socket.gethostname()}.{os.getpid()}"
        for number in itertools.count():
            try:
                path = self._folder / f"{stem}.{number}"
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
                break
            except FileExistsError:
                continue
        first = _record(_event(when, 0, _field(_FILE_VERSION, b"brain.Event:2")))
        if self._purge_step is not None:
            first += _record(_event(when, self._purge_step, _field(_SESSION_LOG, _SESSION_START)))
        return first


# --- protocol buffers


def _event(when: float, step: int, what: bytes) -> bytes:
    return _WALL_TIME + _DOUBLE.pack(when) + _STEP + _varint(step) + what


def _scalar(tag: str, value: float) -> bytes:
    return _field(_TAG, tag.encode()) + _SIMPLE_VALUE + _float32(value)


def _float32(value: float) -> bytes:
    try:
        return _FLOAT.pack(value)
    except OverflowError:  # past the largest float of 32 bits
        return _FLOAT.pack(float("inf") if value > 0 else float("-inf"))


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# --- records


def _record(content: bytes) -> bytes:
    length = _LENGTH.pack(len(content))
    return length + _checksum(length) + content + _checksum(content)


def _checksum(content: bytes) -> bytes:
    crc, table = 0xFFFFFFFF, _CRC_TABLE
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return _CHECKSUM.pack((((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF)


def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_CRC_TABLE = [_crc_of(byte) for byte in range(256)]
