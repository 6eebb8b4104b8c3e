"""Who beats whom: a table of how often the player of a row beats that of a column, coloured by it; by side, too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import htpy as h
from htpy import Node

from ludus.league.folder import is_league
from ludus.league.view import num_sides, payoff_of, spell_side
from ludus.page import parts
from ludus.page.league_files import league_view
from ludus.page.spell import spell_count
from ludus.page.view import View, Visit

__all__ = ["VIEW"]

_SIZES = (12, 24, 48)
_NUM_SHADES = 11  # h0 to h10 of the style


def build(visit: Visit) -> Node:
    view = league_view(visit)
    names = [each["name"] for each in view["players"]]
    size, side = _size(visit), _side(visit, view)
    shown = names[:size]
    payoff = payoff_of(view, side)
    return [
        h.p(class_="quiet")[
            "How often the player of a row beats that of a column, in per cent, a draw counting half. The strongest "
            "first; a dot: they have not met. Choose a player to see its games below."
        ],
        _sides(visit, view, side),
        _sizes(visit, size, len(names)),
        h.div(class_="scroll", tabindex="0", role="region", aria_label="payoff")[_table(visit, shown, payoff)],
        _chosen(visit, shown, view),
    ]


def _side(visit: Visit, view: Mapping[str, Any]) -> int | None:
    """That of the players of rows; `None`: all."""
    given = visit.query.get("side", "")
    return int(given) if given.isdecimal() and int(given) < num_sides(view) else None


def _sides(visit: Visit, view: Mapping[str, Any], chosen: int | None) -> Node:
    num = num_sides(view)
    if not num:
        return None
    rest = {name: value for name, value in visit.query.items() if name != "side"}
    return h.nav("#sides", aria_label="side of the player of a row")[
        h.a(href=visit.url(None, **rest), aria_current="true" if chosen is None else None)[
            "both sides" if num == 2 else "all sides"
        ],
        (
            h.a(href=visit.url(None, **rest, side=side), aria_current="true" if side == chosen else None)[
                f"as {spell_side(side, num)}"
            ]
            for side in range(num)
        ),
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
            [h.a(href=visit.url(None, **{**visit.query, "show": each}))[f"{min(each, num)}"], " "]
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


def _chosen(visit: Visit, shown: Sequence[str], view: Mapping[str, Any]) -> Node:
    """One player's row in words: what a title says, for those who cannot point. With its results by side."""
    payoff, num = view["payoff"], num_sides(view)
    name = visit.query.get("player", shown[0] if shown else "")
    where = {each: number for number, each in enumerate(payoff["players"])}
    if name not in where:
        return None
    row = where[name]
    met = [
        (other, payoff["win_rate"][row][at], payoff["games"][row][at])
        for at, other in enumerate(payoff["players"])
        if other != name and payoff["games"][row][at]
    ]
    met.sort(key=lambda each: each[1])
    by_side = [payoff_of(view, side) for side in range(num)]
    rows = [
        (other, f"{rate:.1%}", *(_rate_of(each, row, where[other]) for each in by_side), spell_count(games))
        for other, rate, games in met
    ]
    columns = ("Opponent", "Won", *(f"as {spell_side(side, num)}" for side in range(num)), "Games")
    return [
        h.h2(id="chosen")[f"{name} against the others"],
        parts.table(columns, rows, label=f"{name} against the others", numeric=range(1, len(columns)))
        if met
        else h.p["It has met nobody yet."],
    ]


def _rate_of(payoff: Mapping[str, Any], row: int, column: int) -> str:
    return f"{payoff['win_rate'][row][column]:.1%}" if payoff["games"][row][column] else "·"


VIEW = View(name="payoff", title="Payoff", applies=is_league, build=build)
