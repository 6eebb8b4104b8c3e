"""What all views of one process share: the project, and the parts that remember something.

site = Site("trials")
site.part(TrialIndex).rows(site.project)        # made when it is first asked for, closed with the site
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

__all__ = ["Site"]

_Part = TypeVar("_Part")


class Site:
    """A part is a class that is made without arguments and called from several threads; it may have a `close`."""

    def __init__(self, project: str | Path) -> None:
        self.project = Path(project).absolute()
        self._lock = threading.Lock()
        self._parts: dict[Callable[[], Any], Any] = {}

    def part(self, kind: Callable[[], _Part]) -> _Part:
        """The one object of this kind."""
        with self._lock:
            if kind not in self._parts:
                self._parts[kind] = kind()
            return cast("_Part", self._parts[kind])

    def trial(self, name: str) -> Path | None:
        """The folder of that name in the project; `None` if there is none. No name leads out of the project."""
        path = self.project / name
        is_inside = name == path.name and name not in ("", "..")
        return path if is_inside and os.path.isdir(path) else None  # false also for what cannot be a name

    def trial_url(self, folder: Path) -> str:
        return f"/trials/{quote(folder.name)}"

    def close(self) -> None:
        with self._lock, contextlib.ExitStack() as stack:
            for part in self._parts.values():
                if hasattr(part, "close"):
                    stack.callback(part.close)
            self._parts.clear()
