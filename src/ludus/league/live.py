"""A league as a command or a page reaches it: the service of one that runs, or the same service here if none does.

with open_league("league-board-connect_four") as league:
    league.standings()
    league.add_player({"name": "second", "role": "main", "model": "second"})
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus import discovery, errors
from ludus.league import config as configs
from ludus.league.config import LeagueRunConfig
from ludus.league.folder import FOLDER
from ludus.league.players import FIXED
from ludus.program import lock
from ludus.trial.find import find
from ludus.workers.remote import Remote

__all__ = ["champion_of", "find_league", "open_league"]

_TIMEOUT_S = 20.0


def find_league(trial: str | Path, *, project: str | Path = "trials") -> tuple[Path, LeagueRunConfig]:
    """The folder and the settings of a league. Raises `ProgramError` or `ConfigError` if it is none."""
    folder = find(trial, project=project).path
    if not (folder / FOLDER).is_dir():
        raise errors.ConfigError(f"trial {folder.name!r} is no league: `ludus league GAME` begins one")
    return folder, configs.load(folder)


@contextlib.contextmanager
def open_league(trial: str | Path, *, project: str | Path = "trials") -> Iterator[Any]:
    """The commands of its `LeagueService`, by calls if a process keeps it."""
    folder, config = find_league(trial, project=project)
    known = _running(folder)
    if known is None:
        from ludus.league.running import make_service  # brings what trains

        with lock.driving(folder), contextlib.closing(make_service(config, folder)) as service:
            yield service
        return
    with contextlib.closing(discovery.connect(known.names_url)) as names:
        remote = Remote(
            FOLDER,
            experiment=known.experiment,
            trial=known.trial,
            names=names,
            secret=known.secret,
            timeout_s=_TIMEOUT_S,
        )
        with contextlib.closing(remote):
            yield remote


def _running(folder: Path) -> Any:
    from ludus.program.folder import TrialFolder

    try:
        known = TrialFolder(folder).load()
    except errors.LudusError:
        return None  # it never ran, or what it wrote of that is lost
    return known if known.is_live else None


def champion_of(standings: list[dict[str, Any]], chosen: str | None = None) -> dict[str, Any] | None:
    """Whom to play against: the one that was promoted, or else the main agent, or snapshot of one, rated highest."""
    players = [each["player"] for each in standings]
    for player in players:
        if player["name"] == chosen:
            return dict(player)
    mains = {player["name"] for player in players if player["role"] == "main"}
    for player in players:
        if player["name"] in mains or (player["role"] in FIXED and player["parent"] in mains):
            return dict(player)
    return next((dict(player) for player in players if player["role"] not in ("bot", "human")), None)
