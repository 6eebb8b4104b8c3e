"""Who is strongest: ratings with their intervals, the strongest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import htpy as h
from htpy import Node

from ludus.league.folder import is_league
from ludus.league.live import champion_of
from ludus.page.league_files import league_view
from ludus.page.spell import spell_count
from ludus.page.trials import is_running
from ludus.page.view import View, Visit

__all__ = ["VIEW"]

_MOST_SHOWN = 50
_Z = 1.96  # a 95 % interval
_BAR_WIDTH, _BAR_HEIGHT = 160, 20


def build(visit: Visit) -> Node:
    view = league_view(visit)
    players = view["players"]
    shown = players if "all" in visit.query else players[:_MOST_SHOWN]
    return [
        _summary(visit, view),
        h.p(class_="quiet")[
            "Ratings with 95 % intervals; the line on each bar is the rating. Of games of two players the older ones "
            "count less, so a player's games may be fewer than it has played."
        ],
        h.div(class_="scroll", tabindex="0", role="region", aria_label="standings")[
            h.table[
                h.thead[
                    h.tr[
                        h.th(scope="col", class_="number")["#"],
                        h.th(scope="col")["Player"],
                        h.th(scope="col", class_="desktop")["Role"],
                        h.th(scope="col", class_="number")["Rating"],
                        h.th(scope="col", aria_label="interval"),
                        h.th(scope="col", class_="number")["Elo"],
                        h.th(scope="col", class_="number")["Won"],
                        h.th(scope="col", class_="number")["Games"],
                        h.th(scope="col", class_="number")["Steps"],
                    ]
                ],
                h.tbody[(_row(number, each, shown, view) for number, each in enumerate(shown, 1))],
            ]
        ],
        h.p[h.a(href=visit.url(all=1))[f"Show all {len(players)}"]] if len(shown) < len(players) else None,
    ]


def _summary(visit: Visit, view: Mapping[str, Any]) -> Node:
    stats, runs = view["stats"], is_running(visit.folder)
    numbers = {
        "Game": view.get("game") or "?",
        "Players": f"{len(view['players'])}",
        "Games played": spell_count(stats.get("num_games", 0)),
        "Matches in flight": f"{stats.get('num_in_flight', 0)}" if runs else "none",
        "Champion": _champion(view),
        "State": "running" if runs else "not running",
    }
    return h.dl(class_="numbers")[(h.div[h.dt[name], h.dd[value]] for name, value in numbers.items())]


def _champion(view: Mapping[str, Any]) -> str:
    chosen = view.get("champion")
    found = champion_of([{"player": each} for each in view["players"]], chosen)
    if found is None:
        return "nobody yet"
    return str(found["name"]) if found["name"] == chosen else f"{found['name']}, by its rating"


def _row(number: int, player: Mapping[str, Any], shown: list[Any], view: Mapping[str, Any]) -> Node:
    half = _Z * player["std"]
    name = player["name"]
    return h.tr[
        h.td(class_="number")[f"{number}"],
        h.th(scope="row")[name, h.span(class_="badge")["champion"] if name == view.get("champion") else None],
        h.td(class_="desktop")[player["role"].replace("_", " ")],
        h.td(class_="number")[f"{player['mean']:.1f} ± {half:.1f}"],
        h.td[_bar(player, shown)],
        h.td(class_="number")[f"{player['elo']:+.0f} ± {_Z * player['elo_std']:.0f}" if player["games"] else "·"],
        h.td(class_="number")[f"{player['win_rate']:.0%}" if player["games"] else "·"],
        h.td(class_="number")[spell_count(player["games"])],
        h.td(class_="number")[spell_count(player["step"]) if player["step"] else ""],
    ]


def _bar(player: Mapping[str, Any], shown: list[Any]) -> Node:
    """The interval of a rating, on the scale of all that are shown."""
    low = min(each["mean"] - _Z * each["std"] for each in shown)
    high = max(each["mean"] + _Z * each["std"] for each in shown)
    scale = _BAR_WIDTH / max(1e-9, high - low)
    left = (player["mean"] - _Z * player["std"] - low) * scale
    middle = (player["mean"] - low) * scale
    return h.svg(
        class_="interval", viewBox=f"0 0 {_BAR_WIDTH} {_BAR_HEIGHT}", width=_BAR_WIDTH, height=_BAR_HEIGHT,
        aria_hidden="true",
    )[
        h.rect(class_="range", x=f"{left:.1f}", y="6", width=f"{2 * (middle - left):.1f}", height="8", rx="4"),
        h.rect(class_="mark", x=f"{middle - 1:.1f}", y="3", width="2", height="14"),
    ]  # fmt: skip


VIEW = View(name="standings", title="Standings", applies=is_league, build=build)
