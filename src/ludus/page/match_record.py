"""A person's games as matches of the league, so that a person has a rating.

match = begin(folder, ["alice", "main-3"])         # by side; None: the trial is no league
finish(folder, match, [1.0, -1.0])                 # whether it was counted
keep(folder)                                       # they are still played; said once a minute
abort(folder, match)
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ludus.errors import ConfigError, ProgramError
from ludus.league.folder import FOLDER
from ludus.league.live import open_league
from ludus.league.view import VIEW_FILE, read_view
from ludus.page.trials import is_running

__all__ = ["abort", "begin", "finish", "keep"]

_OWNER = f"page-{os.getpid()}"  # of this process: another page says nothing of the games that are played here
_PATIENCE_S = 10.0
_PAUSE_S = 0.2
_LOCK = threading.Lock()  # a league that nobody runs is opened by one thread at a time


@contextlib.contextmanager
def _open(folder: Path) -> Iterator[Any]:
    """The league's commands. One that another process starts or ends just now is waited for."""
    until = time.monotonic() + _PATIENCE_S
    with _LOCK, contextlib.ExitStack() as stack:
        while True:
            try:
                league = stack.enter_context(open_league(folder.name, project=folder.parent))
                break
            except ProgramError:
                if time.monotonic() >= until:
                    raise
                time.sleep(_PAUSE_S)
        yield league


def begin(folder: Path, names: Sequence[str], person: str) -> str | None:
    """A match in flight, if a process runs the league; if none does, there is nobody to be informed before its end.

    Raises `ConfigError` if the person's name is that of a player.
    """
    view = read_view(folder / FOLDER / VIEW_FILE) or {"players": []}
    if any(each["name"] == person and each["role"] != "human" for each in view["players"]):
        raise ConfigError(f"{person!r} is a player of this league: choose another name for yourself.")
    if not is_running(folder):
        return None
    with _open(folder) as league:
        return _request(league, names, person)


def finish(
    folder: Path, match: str | None, names: Sequence[str], person: str, scores: Sequence[float]
) -> tuple[float, float] | None:
    """Count the result. The person's rating, mean and std, after it; `None` if it was not counted.

    It is not, if the league has given the match up after waiting for too long.
    """
    with _open(folder) as league:
        if match is None:
            match = _request(league, names, person)
        if not league.report_series([[match, [list(scores)]]])[0]:
            return None
        found = next(each for each in league.standings() if each["player"]["name"] == person)
        return float(found["mean"]), float(found["std"])


def keep(folder: Path) -> None:
    """Its matches are still played: the league gives up those of an owner that is silent for too long."""
    with _open(folder) as league:
        league.keep(_OWNER)


def abort(folder: Path, match: str) -> bool:
    with _open(folder) as league:
        return bool(league.abort_match(match))


def _request(league: Any, names: Sequence[str], person: str) -> str:
    if person not in {player["name"] for player in league.players()}:
        league.add_player({"name": person, "role": "human"})
    return str(league.request_named(list(names), _OWNER)["id"])
