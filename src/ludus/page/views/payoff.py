"""Who beats whom: a table of how often the player of a row beats that of a column, coloured by it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import htpy as h
from htpy import Node

from ludus.league.folder import is_league
from ludus.page.league_files import league_view
from ludus.page.spell import spell_count
from ludus.page.view import View, Visit

__all__ = ["VIEW"]

_SIZES = (12, 24, 48)
_NUM_SHADES = 11  # h0 to h10 of the style


def build(visit: Visit) -> Node:
    view = league_view(visit)
    names = [each["name"] for each in view["players"]]
    size = _size(visit)
    shown = names[:size]
    return [
        h.p(class_="quiet")[
            "How often the player of a row beats that of a column, in per cent, a draw counting half. The strongest "
            "first; a dot: they have not met. Choose a player to see its games below."
        ],
        _sizes(visit, size, len(names)),
        h.div(class_="scroll", tabindex="0", role="region", aria_label="payoff")[_table(visit, shown, view["payoff"])],
        _chosen(visit, shown, view["payoff"]),
    ]


def _size(visit: Visit) -> int:
    given = visit.query.get("show", "")
    return int(given) if given.isdecimal() and int(given) in _SIZES else _SIZES[0]


def _sizes(visit: Visit, size: int, num: int) -> Node:
    if num <= _SIZES[0]:
        return None
    return h.p[
        f"Shown: {min(size, num)} of {num} players. ",
        (
            [h.a(href=visit.url(show=each))[f"{min(each, num)}"], " "]
            for number, each in enumerate(_SIZES)
            if each != size and (number == 0 or num > _SIZES[number - 1])
        ),
    ]


def _table(visit: Visit, shown: Sequence[str], payoff: Mapping[str, Any]) -> Node:
    where = {name: number for number, name in enumerate(payoff["players"])}
    return h.table(class_="heat")[
        h.thead[
            h.tr[
                h.td,
                (
                    h.th(scope="col", title=name)[h.span(class_="upright")[name]]
                    for number, name in enumerate(shown, 1)
                ),
            ]
        ],
        h.tbody[
            (
                h.tr[
                    h.th(scope="row")[h.a(href=_url(visit, name))[name]],
                    (
                        _cell(name, other, payoff["win_rate"][where[name]][where[other]],
                              payoff["games"][where[name]][where[other]])
                        for other in shown
                    ),
                ]
                for name in shown
            )
        ],
    ]  # fmt: skip


def _cell(name: str, other: str, rate: float, games: float) -> Node:
    if name == other:
        return h.td(class_="self")
    if not games or not math.isfinite(rate):
        return h.td(class_="number", title=f"{name} and {other} have not met")["·"]
    return h.td(
        class_=f"number h{round(rate * (_NUM_SHADES - 1))}",
        title=f"{name} won {rate:.1%} of {spell_count(games)} games against {other}",
    )[f"{100 * rate:.0f}"]


def _url(visit: Visit, name: str) -> str:
    return visit.url(None, **{**visit.query, "player": name})


def _chosen(visit: Visit, shown: Sequence[str], payoff: Mapping[str, Any]) -> Node:
    """One player's row in words: what a title says, for those who cannot point."""
    name = visit.query.get("player", shown[0] if shown else "")
    where = {each: number for number, each in enumerate(payoff["players"])}
    if name not in where:
        return None
    met = [
        (other, payoff["win_rate"][where[name]][where[other]], payoff["games"][where[name]][where[other]])
        for other in payoff["players"]
        if other != name and payoff["games"][where[name]][where[other]]
    ]
    met.sort(key=lambda each: each[1])
    return [
        h.h2(id="chosen")[f"{name} against the others"],
        h.p["It has met nobody yet."] if not met else None,
        h.div(class_="scroll", tabindex="0", role="region", aria_label=f"{name} against the others")[
            h.table[
                h.thead[
                    h.tr[
                        h.th(scope="col")["Opponent"],
                        h.th(scope="col", class_="number")["Won"],
                        h.th(scope="col", class_="number")["Games"],
                    ]
                ],
                h.tbody[
                    (
                        h.tr[
                            h.th(scope="row")[other],
                            h.td(class_="number")[f"{rate:.1%}"],
                            h.td(class_="number")[spell_count(games)],
                        ]
                        for other, rate, games in met
                    )
                ],
            ]
        ]
        if met
        else None,
    ]


VIEW = View(name="payoff", title="Payoff", applies=is_league, build=build)
