"""Who comes from whom: a line for each learner, its snapshots along it by the step at which they were taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import htpy as h
from htpy import Node

from ludus.league.folder import is_league
from ludus.page.league_files import league_view
from ludus.page.spell import spell_count
from ludus.page.view import View, Visit

__all__ = ["VIEW"]

_LINE_HEIGHT, _LEFT, _TOP = 64, 16, 26
_SIZES = (("wide-chart", 720), ("narrow-chart", 360))
_RADII = (4.0, 12.0)  # of the weakest and the strongest


def build(visit: Visit) -> Node:
    players = league_view(visit)["players"]
    names = {each["name"] for each in players}
    roots = sorted((each for each in players if each["parent"] not in names), key=lambda each: str(each["name"]))
    children: dict[str, list[Mapping[str, Any]]] = {}
    for each in sorted(players, key=lambda each: int(each["step"])):
        if each["parent"] in names:
            children.setdefault(each["parent"], []).append(each)
    lines = [root for root in roots if root["name"] in children]
    others = [root for root in roots if root["name"] not in children]
    return [
        h.p(class_="quiet")[
            "A snapshot is a learner as it was. The larger its circle, the higher its rating. A bar across the line: "
            "there the learner was reset to weights that nobody has trained."
        ],
        (_drawing(lines, children, players, size) for size in _SIZES) if lines else None,
        h.h2["As a list"],
        h.ul(class_="tree")[(_branch(each, children) for each in [*lines, *others])],
    ]


def _drawing(
    lines: Sequence[Mapping[str, Any]],
    children: Mapping[str, Sequence[Mapping[str, Any]]],
    players: Sequence[Mapping[str, Any]],
    size: tuple[str, int],
) -> Node:
    """One line for each root; what comes from a snapshot is on its root's line, too."""
    kind, width = size
    last = max(1, *(int(each["step"]) for each in players))
    low, high = min(each["mean"] for each in players), max(each["mean"] for each in players)
    height = _TOP + _LINE_HEIGHT * len(lines)

    def right(player: Mapping[str, Any]) -> float:
        return _LEFT + int(player["step"]) / last * (width - 2 * _LEFT)

    def circle(player: Mapping[str, Any], y: float, number: int) -> Node:
        share = (player["mean"] - low) / max(1e-9, high - low)
        radius = _RADII[0] + share * (_RADII[1] - _RADII[0])
        return h.circle(class_=f"f{number % 8}", cx=f"{right(player):.1f}", cy=f"{y}", r=f"{radius:.1f}")[
            h.title[_describe(player)]
        ]

    drawn = []
    for number, root in enumerate(lines):
        y = _TOP + _LINE_HEIGHT * number + _LINE_HEIGHT // 2
        family = [*_family(root, children), root]
        drawn += [
            h.text(class_="tick", x=str(_LEFT), y=f"{y - 20}")[f"{root['name']}: {_count(len(family) - 1)}"],
            h.line(class_=f"s{number % 8}", x1=str(_LEFT), x2=f"{right(root):.1f}", y1=str(y), y2=str(y)),
            *(_bar(right(each), y, number) for each in _last_before_resets(family, root)),
            *(circle(each, y, number) for each in family),
        ]
    scale = f"{spell_count(last)} steps →"
    return h.svg(
        class_=f"tree-lines {kind}", viewBox=f"0 0 {width} {height}", role="img",
        aria_label=f"{len(lines)} learners with their snapshots, over their steps; the list below has them all",
    )[drawn, h.text(class_="tick", x=str(width - _LEFT), y="14", text_anchor="end")[scale]]  # fmt: skip


def _bar(x: float, y: float, number: int) -> Node:
    reach = _RADII[1] + 4.0
    return h.line(class_=f"reset s{number % 8}", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=f"{y - reach}", y2=f"{y + reach}")[
        h.title["reset"]
    ]


def _last_before_resets(family: Sequence[Mapping[str, Any]], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The learner was reset when each of these snapshots of it had been taken."""
    last = {_num_resets(each): each for each in sorted(family, key=lambda each: int(each["step"]))}
    return [each for num, each in last.items() if num < _num_resets(root)]


def _num_resets(player: Mapping[str, Any]) -> int:
    return int(player.get("num_resets", 0))  # absent in what was written before they were counted


def _count(num: int) -> str:
    return f"{num} snapshots" if num != 1 else "1 snapshot"


def _family(root: Mapping[str, Any], children: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """All below it."""
    found: list[Mapping[str, Any]] = []
    ahead, seen = [root["name"]], {root["name"]}
    while ahead:
        below = [each for each in children.get(ahead.pop(), ()) if each["name"] not in seen]
        found += below
        ahead += [each["name"] for each in below]
        seen.update(each["name"] for each in below)  # names twice in a damaged file would go round for ever
    return found


def _branch(player: Mapping[str, Any], children: Mapping[str, Sequence[Mapping[str, Any]]]) -> Node:
    below = children.get(player["name"], ())
    words = h.span[h.strong[player["name"]], f" {_details(player)}"]
    if not below:
        return h.li[words]
    return h.li[h.details(f"#of-{player['name']}")[h.summary[words], h.ul[(_branch(each, children) for each in below)]]]


def _details(player: Mapping[str, Any]) -> str:
    step = f"at step {spell_count(player['step'])}, " if player["step"] else ""
    resets = f"after reset {num}, " if (num := _num_resets(player)) else ""
    return f"{player['role'].replace('_', ' ')}, {step}{resets}rating {player['mean']:.1f}"


def _describe(player: Mapping[str, Any]) -> str:
    return f"{player['name']}: {_details(player)}"


VIEW = View(name="lineage", title="Lineage", applies=is_league, build=build)
