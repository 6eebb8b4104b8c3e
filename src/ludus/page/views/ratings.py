"""Ratings over the matches that were played, with their intervals: is the league still getting stronger?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import htpy as h
from htpy import Node

from ludus.league.folder import is_league
from ludus.page.charts import NUM_COLOURS, Series, line_chart
from ludus.page.league_files import league_view
from ludus.page.view import View, Visit

__all__ = ["VIEW"]

_Z = 1.96
_SHOWN = {"learners": "those that learn", "best": "the strongest now", "all": "everybody"}
_MOST_LINES = 32


def build(visit: Visit) -> Node:
    view = league_view(visit)
    chosen = visit.query.get("of", "learners")
    names = _names(view["players"], chosen)
    history = view["history"]
    series = [
        Series(name, [(x, mean) for x, mean, _ in points], [_Z * std for _, _, std in points])
        for name in names
        if (points := history.get(name))
    ]
    return [
        h.form(class_="row", method="get", action=visit.url(), data_auto=True)[
            h.label(for_="of")["Ratings of"],
            h.select("#of", name="of")[
                (h.option(value=value, selected=value == chosen)[text] for value, text in _SHOWN.items())
            ],
            h.noscript[h.button["Show"]],
        ],
        line_chart(series, title="Ratings", x_name="matches", y_name="rating, 95 % interval", spell_y=_spell),
        h.p(class_="quiet")["A learner that begins again, as exploiters do, falls to where it begins."],
    ]


def _names(players: Sequence[Mapping[str, Any]], chosen: str) -> list[str]:
    match chosen:
        case "best":
            return [each["name"] for each in players[:NUM_COLOURS]]
        case "all":
            return [each["name"] for each in players[:_MOST_LINES]]
    found = [each["name"] for each in players if each["role"] not in ("snapshot", "bot", "frozen", "human")]
    bots = [each["name"] for each in players if each["role"] == "bot"]
    return [*sorted(found), *bots[:2]]


def _spell(value: float) -> str:
    return f"{value:.1f}"


VIEW = View(name="ratings", title="Ratings", applies=is_league, build=build)
