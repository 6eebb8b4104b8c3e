"""Lines over an axis, as SVG: readable in both themes, at both widths, and without a script.

    line_chart([Series("main", [(0, 25.0), (1000, 31.5)])], title="Ratings", x_name="games", y_name="rating")

A chart is drawn twice, for a desktop and for a phone, and the style shows the one that fits: text in an SVG that is
scaled down could not be read. `static/page.js` shows the values under the pointer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import htpy as h
from htpy import Node

from ludus.page.spell import spell_count

__all__ = ["NUM_COLOURS", "Series", "line_chart", "thin", "ticks"]

NUM_COLOURS = 8  # --c0 to --c7 of the style
_SIZES = (("wide-chart", 720, 320, 240), ("narrow-chart", 360, 260, 90))  # class, width, height, points of a line
_LARGEST = 1e100  # the distance of two such numbers is finite
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 8, 10, 36
_Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """Points by rising x. `band`: of each point, half of its interval."""

    name: str
    points: Sequence[_Point]
    band: Sequence[float] | None = None


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_name: str,
    y_name: str,
    spell: Callable[[float], str] = spell_count,
    spell_y: Callable[[float], str] | None = None,
    is_small: bool = False,
) -> Node:
    """`spell`: numbers of the axis below, and of the other one unless `spell_y` is given.

    `is_small`: one of several beside each other, in an element of the class `multiples`; it is drawn narrow only.
    """
    spell_y = spell_y or _spell_value
    shown = [(number, finite) for number, each in enumerate(series) if (finite := _finite(each)).points]
    if not shown:
        return h.p(class_="quiet")[f"{title}: nothing yet."]
    label = f"{title}: {y_name} by {x_name}. " + "; ".join(
        f"{each.name} is at {spell_y(each.points[-1][1])}" for _, each in shown[:12]
    )
    return h.div(class_="chart")[
        (_drawing(shown, size, label, x_name, y_name, spell, spell_y) for size in _SIZES[is_small:]),
        h.div(class_="legend")[
            (
                h.span[h.span(class_=f"swatch k{number % NUM_COLOURS}"), f"{each.name} {spell_y(each.points[-1][1])}"]
                for number, each in shown
            )
        ],
    ]


def thin(points: Sequence[_Point], most: int) -> list[int]:
    """Which points are drawn: of each stretch its lowest and its highest, and both ends."""
    if len(points) <= most:
        return list(range(len(points)))
    kept = {0, len(points) - 1}
    num = max(1, most // 2 - 1)
    for number in range(num):
        stretch = range(len(points) * number // num, len(points) * (number + 1) // num)
        kept |= {min(stretch, key=lambda at: points[at][1]), max(stretch, key=lambda at: points[at][1])}
    return sorted(kept)


def ticks(low: float, high: float, num: int) -> list[float]:
    """Round numbers from `low` to `high`, about `num` of them."""
    step = 10.0 ** math.floor(math.log10((high - low) / num))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= num)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def _drawing(
    shown: Sequence[tuple[int, Series]],
    size: tuple[str, int, int, int],
    label: str,
    x_name: str,
    y_name: str,
    spell: Callable[[float], str],
    spell_y: Callable[[float], str],
) -> Node:
    kind, width, height, most = size
    lines = [(number, each, thin(each.points, most)) for number, each in shown]
    x_low, x_high = _range([each.points[at][0] for _, each, kept in lines for at in kept])
    y_low, y_high = _range([y for _, each, kept in lines for at in kept for y in _extent(each, at)])

    def right(x: float) -> float:
        return _LEFT + (x - x_low) / (x_high - x_low) * (width - _LEFT - _RIGHT)

    def down(y: float) -> float:
        return height - _BOTTOM - (y - y_low) / (y_high - y_low) * (height - _TOP - _BOTTOM)

    def place(point: _Point) -> tuple[float, float, _Point]:
        return right(point[0]), down(point[1]), point

    drawn = [(number, each.name, [place(each.points[at]) for at in kept]) for number, each, kept in lines]
    values = [
        {"name": name, "colour": number % NUM_COLOURS, "at": [[round(x, 1), round(y, 1), spell(point[0]),
         spell_y(point[1])] for x, y, point in points]}
        for number, name, points in drawn
    ]  # fmt: skip
    return h.svg(class_=f"lines {kind}", viewBox=f"0 0 {width} {height}", role="img", aria_label=label,
                 data_values=json.dumps(values, separators=(",", ":")))[
        (
            [
                h.line(class_="grid", x1=str(_LEFT), x2=str(width - _RIGHT), y1=f"{down(y):.1f}", y2=f"{down(y):.1f}"),
                h.text(class_="tick", x=str(_LEFT - 6), y=f"{down(y) + 4:.1f}", text_anchor="end")[spell_y(y)],
            ]
            for y in ticks(y_low, y_high, 5)
        ),
        (
            h.text(class_="tick", x=f"{right(x):.1f}", y=str(height - _BOTTOM + 16),
                   text_anchor=_anchor(right(x), width))[spell(x)]
            for x in ticks(x_low, x_high, width // 90)
        ),
        h.text(class_="tick", x=str(width - _RIGHT), y=str(height - 4), text_anchor="end")[x_name],
        h.text(class_="tick", x="2", y=str(height - 4))[f"↑ {y_name}"],
        (
            h.polygon(class_=f"band f{number % NUM_COLOURS}", points=_band(each, kept, right, down))
            for number, each, kept in lines
            if each.band is not None
        ),
        (
            h.polyline(class_=f"line s{number % NUM_COLOURS}", points=_path((x, y) for x, y, _ in points))
            if len(points) > 1
            else h.circle(class_=f"f{number % NUM_COLOURS}", cx=f"{points[0][0]:.1f}", cy=f"{points[0][1]:.1f}", r="4")
            for number, _, points in drawn
        ),
    ]  # fmt: skip


def _anchor(x: float, width: int) -> str:
    """Of a tick's text: at the edge it would be cut off."""
    return "end" if x > width - 24 else "middle"


def _finite(each: Series) -> Series:
    kept = [at for at, point in enumerate(each.points) if all(map(_is_drawable, (*point, *_half(each, at))))]
    if len(kept) == len(each.points):
        return each
    band = None if each.band is None else [each.band[at] for at in kept]
    return Series(each.name, [each.points[at] for at in kept], band)


def _half(each: Series, at: int) -> tuple[float, ...]:
    return () if each.band is None else (each.band[at],)


def _is_drawable(value: float) -> bool:
    return abs(value) < _LARGEST  # of NaN it is false


def _extent(each: Series, at: int) -> tuple[float, float]:
    y, half = each.points[at][1], 0.0 if each.band is None else each.band[at]
    return y - half, y + half


def _band(each: Series, kept: Sequence[int], right: Callable[[float], float], down: Callable[[float], float]) -> str:
    edges = [[(right(each.points[at][0]), down(_extent(each, at)[side])) for at in kept] for side in (0, 1)]
    return _path([*edges[0], *reversed(edges[1])])


def _path(points: Iterable[_Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if high - low < 1e-12 * max(1.0, abs(high)):
        return low - 0.5 * max(1.0, abs(low)), high + 0.5 * max(1.0, abs(high))
    return low, high


def _spell_value(value: float) -> str:
    return spell_count(value) if abs(value) >= 10_000 else f"{value:.4g}"
