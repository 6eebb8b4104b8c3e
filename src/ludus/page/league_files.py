"""What a league has left for pages: `league/view.json`, read again only when it has changed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from ludus.errors import ConfigError
from ludus.league.folder import FOLDER
from ludus.league.view import VIEW_FILE, read_view
from ludus.page.trials import is_running
from ludus.page.view import Visit

__all__ = ["LeagueFiles", "league_view"]

_MOST_KEPT = 8


def league_view(visit: Visit) -> dict[str, Any]:
    """Raises `ConfigError` that says why there is nothing to show yet."""
    found = visit.site.part(LeagueFiles).read(visit.folder)
    if found is None:
        runs = is_running(visit.folder)
        raise ConfigError(
            "The league has started and has not played a match yet."
            if runs
            else "The league has played no match, and no process drives it now."
        )
    return found


class LeagueFiles:
    """A part of the site. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}

    def read(self, folder: Path) -> dict[str, Any] | None:
        """The last that was whole; `None` if there is none. Do not change it: others are given the same."""
        path = folder / FOLDER / VIEW_FILE
        try:
            stat = path.stat()
        except OSError:
            return None
        mark = stat.st_mtime_ns, stat.st_ino
        with self._lock:
            known = self._known.get(folder)
            if known is not None and known[0] == mark:
                return known[1]
            found = read_view(path)
            if found is None:
                return None if known is None else known[1]
            self._known.pop(folder, None)
            self._known[folder] = mark, found
            if len(self._known) > _MOST_KEPT:
                del self._known[next(iter(self._known))]
            return found
