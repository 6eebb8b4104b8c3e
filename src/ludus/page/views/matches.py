"""Matches as they finish, the newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import htpy as h
from htpy import Node

from ludus.league.folder import is_league
from ludus.page.league_files import league_view
from ludus.page.view import View, Visit

__all__ = ["VIEW"]


def build(visit: Visit) -> Node:
    view = league_view(visit)
    wanted = visit.query.get("player", "")
    names = sorted({name for each in view["recent"] for name in each["players"]})
    recent = [each for each in reversed(view["recent"]) if not wanted or wanted in each["players"]]
    return [
        h.form(class_="row", method="get", action=visit.url(), data_auto=True)[
            h.label(for_="player")["Matches of"],
            h.select("#player", name="player")[
                h.option(value="")["everybody"],
                (h.option(value=name, selected=name == wanted)[name] for name in names),
            ],
            h.noscript[h.button["Show"]],
        ],
        h.p(class_="quiet")[
            f"The last {len(view['recent'])} matches that were counted; wins, draws and losses of each player."
        ],
        h.p["None of them."] if not recent else None,
        h.div(class_="scroll", tabindex="0", role="region", aria_label="matches")[
            h.table[
                h.thead[
                    h.tr[
                        h.th(scope="col", class_="number")["Match"],
                        (h.th(scope="col")[f"Side {side + 1}"] for side in range(int(view["num_sides"]))),
                        h.th(scope="col", class_="number")["Games"],
                    ]
                ],
                h.tbody[(_row(each) for each in recent)],
            ]
        ]
        if recent
        else None,
    ]


def _row(match: Mapping[str, Any]) -> Node:
    games = match["games"]
    return h.tr[
        h.td(class_="number")[match["id"]],
        (_side(name, [game[side] for game in games], games) for side, name in enumerate(match["players"])),
        h.td(class_="number")[f"{len(games)}"],
    ]


def _side(name: str, scores: list[float], games: list[list[float]]) -> Node:
    best = [max(game) for game in games]
    worst = [min(game) for game in games]
    draws = sum(low == high for low, high in zip(worst, best, strict=True))
    wins = sum(score == high != low for score, low, high in zip(scores, worst, best, strict=True))
    losses = len(scores) - wins - draws
    kind = "won" if wins > losses else "lost" if losses > wins else ""
    return h.td[h.span(class_=f"result {kind}")[name], " ", h.span(class_="quiet")[f"{wins}–{draws}–{losses}"]]


VIEW = View(name="matches", title="Matches", applies=is_league, build=build)
