"""Players of a league as its view has them: by files alone, whether it runs or not.

viewed_player(folder, "main-3")
viewed_player(folder)                                  # the champion
"""

from __future__ import annotations

from pathlib import Path

from ludus.errors import ConfigError
from ludus.league.folder import FOLDER
from ludus.league.live import champion_of
from ludus.league.players import Player, player_of
from ludus.league.view import VIEW_FILE, expect_view

__all__ = ["viewed_player"]

_FIELDS = ("name", "role", "model", "version", "parent", "step", "sides", "search", "gumbel")


def viewed_player(folder: Path, name: str | None = None) -> Player:
    """By its name, or the champion of the league in a trial's folder. Raises `ConfigError` if there is none."""
    view = expect_view(folder / FOLDER / VIEW_FILE)
    players = [{field: each[field] for field in _FIELDS if field in each} for each in view["players"]]
    if name is None:
        found = champion_of([{"player": each} for each in players], view.get("champion"))
        if found is None:
            raise ConfigError(f"the league {folder.name!r} has no champion: all its players are bots or people")
        return player_of(found)
    for each in players:
        if each["name"] == name:
            return player_of(each)
    there = ", ".join(each["name"] for each in players)
    raise ConfigError(f"the league {folder.name!r} has no player {name!r}; there are: {there}")
