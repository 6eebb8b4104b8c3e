"""Files that are whole or not there, whatever kill or power cut comes between."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["remove_parts", "replace_file"]


def replace_file(path: Path, parts: Iterable[Buffer]) -> None:
    """Put these bytes under `path`, so that whoever looks, after whatever kill, finds the old file or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            for content in parts:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_parts(folder: Path) -> None:
    """Remove what a killed `replace_file` left in the folder. For the only process that writes there."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)
