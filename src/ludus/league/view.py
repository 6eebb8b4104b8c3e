"""What a league shows: standings, who beats whom, ratings over time, the last matches. One JSON file, for pages.

    write_view(folder / "view.json", league, game="board:connect_four", stats={})
    view = read_view(folder / "view.json")
    view["players"][0]["name"]                         # the strongest
    payoff_of(view, side=0)["win_rate"]                # of the players of rows, where they were first

It is written about once a second by the process that keeps the league, and is whole whenever it is read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ludus import files
from ludus.errors import ConfigError, DataError
from ludus.league.league import League
from ludus.league.payoff import ANY_SIDE, Payoff
from ludus.league.rating import elo

__all__ = [
    "VIEW_FILE",
    "expect_view",
    "make_view",
    "num_sides",
    "payoff_of",
    "read_view",
    "spell_side",
    "write_view",
]

VIEW_FILE = "view.json"
_MOST_POINTS = 20_000  # of all players' histories together
_LEAST_POINTS = 20  # of each


def make_view(league: League, *, game: str = "", stats: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Players with the strongest first; the matrices of `payoff` are `[player, opponent]`."""
    standings = league.standings()
    names = [each.player.name for each in standings]
    points = elo(league.payoff, names)
    most = max(_LEAST_POINTS, _MOST_POINTS // max(1, len(names)))
    return {
        "time": time.time(),
        "game": game,
        "champion": league.champion,
        "mixture": league.mixture(),
        "num_sides": league.settings.num_sides,
        "players": [
            {
                "name": each.player.name,
                "role": each.player.role,
                "model": each.player.model,
                "version": each.player.version,
                "parent": each.player.parent,
                "step": each.player.step,
                "sides": list(each.player.sides),
                "search": each.player.search,
                "num_resets": each.player.num_resets,
                "gumbel": each.player.gumbel,
                "mean": each.rating.mean,
                "std": each.rating.std,
                "elo": points[each.player.name].mean,
                "elo_std": points[each.player.name].std,
                "games": each.games,
                "win_rate": each.win_rate,
            }
            for each in standings
        ],
        "payoff": {
            "players": names,
            **_results(league.payoff, names, ANY_SIDE),
            "by_side": [_results(league.payoff, names, side) for side in range(league.teams.num)],
        },
        "history": {name: _thinned(points, most) for name, points in league.history.items()},
        "recent": [
            {"id": each.id, "players": list(each.players), "games": [list(game) for game in each.games]}
            for each in league.recent
        ],
        "stats": {**(stats or {}), "num_games": league.num_games},
    }


def _results(payoff: Payoff, names: Sequence[str], side: int) -> dict[str, Any]:
    win_rate, games = payoff.results(names, side)
    return {"win_rate": win_rate.round(4).tolist(), "games": games.round(2).tolist()}


def num_sides(view: Mapping[str, Any]) -> int:
    """How many sides, or teams, its payoff tells apart; 0 of a view that was written before there were any."""
    return len(view["payoff"].get("by_side", ()))


def payoff_of(view: Mapping[str, Any], side: int | None = None) -> dict[str, Any]:
    """`players`, and the matrices `win_rate` and `games`: over all sides or, by the player of a row, in one.

    Raises `ConfigError` if the view has no such side.
    """
    payoff, num = view["payoff"], num_sides(view)
    if side is not None and not 0 <= side < num:
        why = f"sides are 0 to {num - 1}" if num else "they were not kept when this league ran last. Run it again"
        raise ConfigError(f"there are no results of side {side}: {why}")
    return {"players": payoff["players"], **(payoff if side is None else {**payoff["by_side"][side], "side": side})}


def spell_side(side: int, num: int) -> str:
    """How a side of `num` is called."""
    return ("first", "second")[side] if num == 2 else f"side {side}"


def _thinned(points: Sequence[tuple[int, float, float]], most: int) -> list[list[float]]:
    """Every second, fourth, … of them, and the last."""
    step = 1
    while len(points) > most * step:
        step *= 2
    chosen = [*points[:-1:step], points[-1]] if step > 1 else points
    return [list(point) for point in chosen]


def write_view(path: Path, league: League, *, game: str = "", stats: Mapping[str, Any] | None = None) -> None:
    """Raises `OSError` if it cannot be written."""
    content = msgspec.json.encode(make_view(league, game=game, stats=stats))
    files.replace(path, [content], durable=False)


def read_view(path: Path) -> dict[str, Any] | None:
    """`None` if there is none yet, or if it cannot be read."""
    try:
        found = files.read_json(path)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "players" in found else None


def expect_view(path: Path) -> dict[str, Any]:
    """Raises `ConfigError` if there is none yet, `DataError` if it cannot be read. `path` is in `TRIAL/league`."""
    found, name = read_view(path), path.parent.parent.name
    if found is not None:
        return found
    if not path.exists():
        raise ConfigError(f"the league {name!r} has played no match yet")
    raise DataError(
        f"{path} cannot be read, so nothing can be shown. It is made from the league's log: run the league again, or "
        f"ludus league promote {name}, and it is written as it was"
    )
