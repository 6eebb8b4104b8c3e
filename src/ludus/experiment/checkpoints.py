"""Checkpoints: a nest in one file, whole and verified, or not there at all.

    store = CheckpointStore(trial_dir / "checkpoints")
    store.save(12_345, {"weights": …, "optimizer": …, "rng": …})      # checkpoints/checkpoint-000012345.ludus
    step, content = store.load()                                      # the newest that is valid

A file is 50 bytes of header (magic, format, SHA-256 and length of the body) and the body: the number of frames, their
lengths, the frames of `ludus.data.encode`. It is written under a temporary name, synced, renamed, and its folder is
synced; then `checkpoints.json` is replaced in the same way. The files are the truth, the list is for those who look.

One process saves, any may load: loading changes nothing in the folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import struct
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ludus import data, errors, files
from ludus.data import Nest
from ludus.data.digest import digest

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["CheckpointRecord", "CheckpointStore"]

_log = logging.getLogger(__name__)

_LIST = "checkpoints.json"
_NAME = re.compile(r"checkpoint-(\d{9,})\.ludus")

_MAGIC, _FORMAT = b"LUDUSCKP", 1
_HEADER = struct.Struct("<8sH32sQ")  # magic, format, SHA-256 of the body, bytes of the body
_COUNT, _LENGTH = struct.Struct("<I"), struct.Struct("<Q")

_LIMITS = data.Limits(max_depth=256, max_leaves=50_000_000, max_bytes=1 << 40)  # what was saved here, not a stranger's


@dataclass(frozen=True, kw_only=True)
class CheckpointRecord:
    """What `checkpoints.json` says of one checkpoint."""

    step: int
    file: str
    sha256: str  # of the body
    bytes: int  # of the file
    time: float  # seconds since 1970
    weights: str | None = None  # the digest of content["weights"]


class CheckpointStore:
    """The checkpoints of one trial. `keep`: how many of the newest stay."""

    def __init__(self, folder: Path, *, keep: int = 3) -> None:
        if keep < 1:
            raise errors.ConfigError(f"keep={keep} checkpoints: at least 1 must stay, or nothing could be resumed.")
        self._folder = Path(folder)
        self._keep = keep

    def save(self, step: int, content: Nest) -> Path:
        """Write `content`; once this returns, it survives a kill and a power cut. Older ones than `keep` are removed.

        Checkpoints of later steps are removed too: the run went back, and what came after `step` is no longer its own.
        Raises `CheckpointError`, with the earlier checkpoints as they were, if it cannot be written.
        """
        frames = _encode(step, content)
        body = [_COUNT.pack(len(frames)), *(_LENGTH.pack(data.nbytes([frame])) for frame in frames), *frames]
        size, sha = data.nbytes(body), _sha256(body)
        path = self._folder / f"checkpoint-{step:09d}.ludus"
        try:
            files.make_folder(self._folder)
            files.remove_parts(self._folder)
            files.replace(path, [_HEADER.pack(_MAGIC, _FORMAT, sha.digest(), size), *body])
            record = CheckpointRecord(
                step=step, file=path.name, sha256=sha.hexdigest(), bytes=_HEADER.size + size, time=time.time(),
                weights=_weights_digest(content),
            )  # fmt: skip
            self._settle(record)
        except OSError as error:
            raise errors.CheckpointError(
                f"the checkpoint of step {step} could not be written to {self._folder}: {error}. Earlier checkpoints "
                "are as they were."
            ) from error
        return path

    def load(self, step: int | None = None, *, at_most: int | None = None, warns: bool = True) -> tuple[int, Nest]:
        """The step and content of the newest valid checkpoint, or of the one of `step`. Arrays are writable.

        With `at_most`, later steps than that are left aside. One that is torn, altered or missing is passed over with
        a warning unless `warns` is false. Raises `CheckpointError` if none is left.
        """
        names = self._names()
        if step is not None:
            names = [name for name in names if _step_of(name) == step]
            if not names:
                there = ", ".join(str(_step_of(name)) for name in self._names()) or "none"
                raise errors.CheckpointError(f"{self._folder} has no checkpoint of step {step}; there are: {there}.")
        if at_most is not None:
            names = [name for name in names if _step_of(name) <= at_most]
        passed_over: list[str] = []
        for name in names:
            try:
                found = _read(self._folder / name)
            except errors.CheckpointError as error:
                passed_over.append(f"{name} {error}")
                continue
            for why in passed_over if warns else ():
                _log.warning("%s; %s is used instead.", why, name)
            return found
        if not passed_over:
            raise errors.CheckpointError(f"there is no checkpoint in {self._folder}.")
        raise errors.CheckpointError(
            f"no checkpoint in {self._folder} can be used: {'; '.join(passed_over)}. The run cannot be resumed from "
            "here; start it again."
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever saved here: neither a file nor a list of any. What is there may still be invalid."""
        return not self._names()

    def steps(self) -> list[int]:
        """Of all that is there or should be, newest first, valid or not."""
        return [_step_of(name) for name in self._names()]

    def records(self) -> list[CheckpointRecord]:
        """What the list says, oldest first; nothing if there is none. The files themselves are not looked at."""
        try:
            listed = json.loads((self._folder / _LIST).read_text(encoding="utf-8"))["checkpoints"]
            return [CheckpointRecord(**record) for record in listed]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError) as error:
            _log.warning(
                "%s cannot be read (%s); the checkpoints are looked for one by one.", self._folder / _LIST, error
            )
            return []

    # --- what is in the folder

    def _names(self) -> list[str]:
        """The files there and those the list misses, newest first."""
        there = {path.name for path in self._folder.glob("checkpoint-*.ludus") if _NAME.fullmatch(path.name)}
        listed = {record.file for record in self.records() if _NAME.fullmatch(record.file)}
        return sorted(there | listed, key=_step_of, reverse=True)

    def _settle(self, newest: CheckpointRecord) -> None:
        """Write the list, then remove what is no longer in it."""
        present = [name for name in self._names() if _step_of(name) <= newest.step and (self._folder / name).exists()]
        kept = set(present[: self._keep])
        known = {record.file: record for record in self.records()} | {newest.file: newest}
        listed = sorted((known[name] for name in kept if name in known), key=lambda record: record.step)
        content = {"format": _FORMAT, "checkpoints": [asdict(record) for record in listed]}
        files.replace_json(self._folder / _LIST, content)
        for path in self._folder.glob("checkpoint-*.ludus"):
            if _NAME.fullmatch(path.name) and path.name not in kept:
                path.unlink(missing_ok=True)


# --- one file


def _encode(step: int, content: Nest) -> list[bytes | memoryview]:
    if step < 0:
        raise errors.CheckpointError(f"a checkpoint of step {step}: steps are counted from 0.")
    try:
        return data.encode({"step": step, "content": content}, limits=_LIMITS)
    except errors.CodecError as error:
        advice = " Save str() of it and int() what is loaded." if "does not fit into 64" in str(error) else ""
        raise errors.CheckpointError(f"the checkpoint of step {step} was not written: {error}.{advice}") from error


def _read(path: Path) -> tuple[int, Nest]:
    """Raises `CheckpointError` with the end of a sentence that begins with the file's name."""
    try:
        with open(path, "rb") as file:
            frames = _read_frames(file)
    except FileNotFoundError:
        raise errors.CheckpointError("is listed, but not there") from None
    except OSError as error:
        raise errors.CheckpointError(f"cannot be read ({error})") from error
    try:
        match data.decode(frames, limits=_LIMITS):
            case {"step": int(step), "content": content}:
                if step == _step_of(path.name):
                    return step, content
                raise errors.CheckpointError(f"is the checkpoint of step {step} under another name")
    except errors.CodecError as error:
        raise errors.CheckpointError(f"cannot be decoded ({error})") from error
    raise errors.CheckpointError("holds something else than a checkpoint")


def _read_frames(file: BinaryIO) -> list[memoryview]:
    """The frames, each in memory of its own, after all of it was verified."""
    header, total = file.read(_HEADER.size), os.fstat(file.fileno()).st_size
    if len(header) < _HEADER.size:
        raise errors.CheckpointError(f"is torn: it ends after {total} bytes")
    magic, version, sha256, size = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise errors.CheckpointError("is no checkpoint, or its first bytes were altered")
    if version != _FORMAT:
        raise errors.CheckpointError(f"has format {version}, this Ludus reads format {_FORMAT}")
    if total != _HEADER.size + size:
        raise errors.CheckpointError(f"is torn: it has {total} bytes of {_HEADER.size + size}")
    sha = hashlib.sha256()
    left = size

    def take(num_bytes: int) -> memoryview:
        nonlocal left
        if num_bytes > left:
            raise errors.CheckpointError("was altered: the lengths in it do not add up")
        left -= num_bytes
        buffer = np.empty(num_bytes, np.uint8).data
        if file.readinto(buffer) != num_bytes:  # type: ignore[attr-defined]
            raise errors.CheckpointError("is torn: it became shorter while it was read")
        sha.update(buffer)
        return buffer

    (count,) = _COUNT.unpack(take(_COUNT.size))
    lengths = [length for (length,) in _LENGTH.iter_unpack(take(_LENGTH.size * count))]
    frames = [take(length) for length in lengths]
    if left or sha.digest() != sha256:
        raise errors.CheckpointError("was altered: its SHA-256 is another")
    return frames


def _sha256(parts: Sequence[Buffer]) -> Any:
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part)
    return sha


def _weights_digest(content: Nest) -> str | None:
    return digest(content["weights"]) if isinstance(content, dict) and "weights" in content else None


def _step_of(name: str) -> int:
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else -1
