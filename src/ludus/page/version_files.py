"""The versions of a model by the names of their files: nothing is opened, however large it is."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["VersionFile", "versions_of"]


@dataclass(frozen=True, kw_only=True)
class VersionFile:
    number: int
    made: float  # since 1970
    num_bytes: int


_NAME = re.compile(r"(\d{9,})-[0-9a-f]{12}\.\w+")


def versions_of(folder: Path) -> list[VersionFile]:
    """The newest first. One that is removed while it is looked at is left out."""
    found = []
    for path in folder.glob("*-*.*"):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            found.append(VersionFile(number=int(match[1]), made=status.st_mtime, num_bytes=status.st_size))
    return sorted(found, key=lambda each: -each.number)
