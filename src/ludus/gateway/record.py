"""Recordings: every step of every session with its answer, so that it can be played again through other code.

A file is a sequence of msgpack messages with their length in front: a head, then one `Recorded` for each step.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ludus import errors
from ludus.gateway.appending import append
from ludus.gateway.http.wire import answer_of
from ludus.gateway.session import Session
from ludus.gateway.step import Outcome, Step

__all__ = ["Recorded", "Recorder", "count_records", "read_recording"]

_LOG = logging.getLogger(__name__)
_MAGIC = "ludus-recording-1"
_encode = msgspec.msgpack.Encoder().encode


class Recorded(msgspec.Struct, array_like=True, frozen=True):
    """One step that an actor ran. Its outcome is kept as HTTP has it: this format is older than other doors."""

    time: float
    kind: str | None
    session: str
    run: str
    number: int | None
    data: bytes
    status: int
    body: bytes
    versions: dict[str, int]  # that it played, as far as it had played any
    end_reason: str


class Recorder:
    """An observer of sessions. What it observed is in the file when it returns, as far as the process is concerned.

    Raises `OSError` if it cannot be written; then nothing of it is there, and what follows can be read.
    """

    def __init__(self, path: Path, about: dict[str, Any] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if os.fstat(self._fd).st_size == 0:
            self._write(_encode({"format": _MAGIC, "began": time.time(), **(about or {})}))

    def __call__(self, step: Step, outcome: Outcome, session: Session) -> None:
        answer = answer_of(outcome)
        recorded = Recorded(
            time=time.time(),
            kind=step.kind,
            session=step.session,
            run=session.run,
            number=step.number,
            data=step.data,
            status=answer.status,
            body=answer.body,
            versions=dict(session.versions),
            end_reason=session.end_reason,
        )
        self._write(_encode(recorded))

    def _write(self, message: bytes) -> None:
        append(self._fd, len(message).to_bytes(4, "little") + message)

    def close(self) -> None:
        os.close(self._fd)


def read_recording(path: Path) -> tuple[dict[str, Any], Iterator[Recorded]]:
    """The head, and the steps in the order in which they ran; a last one that was cut off is left out."""
    messages = _messages(path)
    try:
        head = msgspec.msgpack.decode(next(messages))
    except (StopIteration, msgspec.DecodeError, UnicodeDecodeError):
        head = None
    if not isinstance(head, dict) or head.get("format") != _MAGIC:
        raise errors.DataError(f"{path} is not a recording of sessions; `ludus serve --record` makes them")
    decoder = msgspec.msgpack.Decoder(Recorded)
    return head, (decoder.decode(message) for message in messages)


def count_records(path: Path) -> int:
    """How many steps a recording has; none of them is decoded."""
    num, size = -1, path.stat().st_size  # the first is the head
    with open(path, "rb") as file:
        while len(length := file.read(4)) == 4 and file.tell() + int.from_bytes(length, "little") <= size:
            file.seek(int.from_bytes(length, "little"), os.SEEK_CUR)
            num += 1
    return max(0, num)


def _messages(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while len(size := file.read(4)) == 4:
            message = file.read(int.from_bytes(size, "little"))
            if len(message) < int.from_bytes(size, "little"):
                _LOG.warning("%s: its last %d bytes are torn or damaged, and left out", path, 4 + len(message))
                return
            yield message
