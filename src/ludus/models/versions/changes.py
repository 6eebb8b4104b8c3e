"""What was published of a model, for those who follow it; and who follows it, for those who remove old versions."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludus import errors

__all__ = ["ATTENDED_KEEP", "ATTEND_S", "NEWEST", "Changes", "at_or_before", "attend", "is_attended"]

NEWEST = -1
"""As a step: the newest version, whatever its number."""

ATTEND_S = 30.0
"""A subscriber that has not said for so long that it is there is gone."""

ATTENDED_KEEP = 64
"""How many of the newest versions stay while somebody subscribes: one that looks every few milliseconds sees all."""

_SUBSCRIBERS = ".subscribers-"


@dataclass(frozen=True, kw_only=True)
class Changes:
    """One moment of a model's versions."""

    num_published: int  # in all, those removed since included
    num_rewinds: int  # how often numbers were given to other weights
    numbers: tuple[int, ...]  # of the versions that are there, oldest first


def at_or_before(model: str, numbers: Sequence[int], step: int) -> int:
    """The newest of `numbers` at or before `step`; -1: of all. Raises `DataError`, which says what is there."""
    if isinstance(step, bool) or not isinstance(step, int) or step < NEWEST:
        raise errors.DataError(f"{step!r} is no step of {model!r}: give the number of a version, or -1 for the newest")
    found = [number for number in numbers if step == NEWEST or number <= step]
    if found:
        return max(found)
    if not numbers:
        raise errors.DataError(f"{model!r} has no version yet: publish one first")
    raise errors.DataError(
        f"{model!r} has no version at or before {step}; there are: {_brief(numbers)}. Older ones may have been removed."
    )


def _brief(numbers: Iterable[int]) -> str:
    shown = [str(number) for number in sorted(numbers)]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:6], "…", *shown[-5:]])


def attend(folder: Path, model: str, *, seconds: float = ATTEND_S) -> None:
    """Say that somebody subscribes to a model of this folder, for so long; it need not be there yet."""
    path = folder / f"{_SUBSCRIBERS}{model}"
    until = time.time() + seconds
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    os.close(fd)
    os.utime(path, (until, until))


def is_attended(folder: Path, model: str) -> bool:
    """Whether a subscriber has said lately that it is there."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(folder / f"{_SUBSCRIBERS}{model}").st_mtime > time.time()
    return False
