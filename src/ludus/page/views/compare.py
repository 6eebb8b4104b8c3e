"""Learning curves of several trials over each other. They are chosen on the index; the address has the choice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

import htpy as h
from htpy import Node
from starlette.datastructures import QueryParams

from ludus.page import parts, smoothing
from ludus.page.charts import NUM_COLOURS, Series, line_chart
from ludus.page.frame import note
from ludus.page.metric_series import MetricFiles, Metrics, Point
from ludus.page.site import Site
from ludus.page.spell import spell_count
from ludus.page.stages import RATE
from ludus.page.trials import TrialIndex
from ludus.page.views.training import AXES, behind, chosen_axis, spell_return

__all__ = ["EVERY_S", "MOST_TRIALS", "build"]

EVERY_S = 2.0
MOST_TRIALS = NUM_COLOURS
_RETURNS = "episode/return"
_COMMON = (_RETURNS, "eval/return", "eval/vs_random", RATE, "lag/mean", "train/loss", "train/entropy")


def build(site: Site, query: QueryParams) -> Node:
    """`query`: `trial`, several times; `metric`; `by`; `smooth`."""
    chosen = list(dict.fromkeys(name for name in query.getlist("trial") if name == Path(name).name))
    shown = chosen[:MOST_TRIALS]
    metric, axis = query.get("metric", _RETURNS), chosen_axis(query)
    reach = smoothing.CHOICES.get(query.get("smooth", "none"), 0)
    looks = {name: _look(site, name, metric, axis, reach) for name in shown}
    gone = [name for name, look in looks.items() if look is None]
    names = sorted({each for look in looks.values() if look is not None for each in look[0]})
    reading = min((look[2] for look in looks.values() if look is not None), default=1.0)
    spell = spell_return if metric.partition("/")[0] in ("episode", "eval") else _spell
    return [
        h.h1["Trials beside each other"],
        behind(reading) if reading < 1.0 else None,
        note(f"No folder of the project is called: {', '.join(gone)}.", kind="warning") if gone else None,
        note(f"The first {MOST_TRIALS} are drawn: there are no more colours to tell.") if shown != chosen else None,
        _options(query, shown, names, metric),
        line_chart(
            [Series(name, [] if look is None else look[1]) for name, look in looks.items()],
            title=metric, x_name=AXES[axis], y_name=metric.rpartition("/")[2], spell_y=spell,
        )
        if looks
        else note("No trials are chosen. Tick some on the list of trials, and press Compare."),
        _table(site, shown),
        h.p[h.a(href=f"/?{urlencode([('trial', name) for name in shown])}")["Choose others"]],
    ]  # fmt: skip


def _look(site: Site, name: str, metric: str, axis: str, reach: int) -> tuple[list[str], list[Point], float] | None:
    """The metrics of a trial, the points of one, and how much of its file was read; `None` if it is gone."""
    folder = site.trial(name)
    if folder is None:
        return None

    def look(metrics: Metrics) -> tuple[list[str], list[Point], float]:
        points = smoothing.smooth(metrics.points(metric, "seconds" if axis == "seconds" else "steps"), reach)
        return metrics.names(), points, metrics.share_read if metrics.is_behind else 1.0

    return site.part(MetricFiles).use(folder, look)


def _options(query: QueryParams, shown: Sequence[str], names: Sequence[str], metric: str) -> Node:
    known = [name for name in _COMMON if name in names]
    known += [name for name in names if name not in known]
    if metric not in known:
        known.insert(0, metric)
    return h.form("#options.row", method="get", action="/compare", data_auto=True)[
        (h.input(type="hidden", name="trial", value=name) for name in shown),
        parts.choice("metric", "Metric", {name: name for name in known}, metric),
        parts.choice("by", "By", AXES, chosen_axis(query)),
        parts.choice("smooth", "Smoothing", {each: each for each in smoothing.CHOICES}, query.get("smooth", "none")),
        h.noscript[h.button["Show"]],
    ]


def _table(site: Site, shown: Sequence[str]) -> Node:
    rows = []
    for number, name in enumerate(shown):
        folder = site.trial(name)
        if folder is None:
            continue
        try:
            row = site.part(TrialIndex).row(folder)
        except OSError:  # removed just now
            continue
        link = h.a(href=site.trial_url(row.folder))[name]
        what = f"{row.algorithm} {row.env}".strip() or row.kind
        swatch = h.span(class_=f"swatch k{number % NUM_COLOURS}")
        rows.append(
            ([swatch, link], h.span(class_=f"badge {row.status}")[row.status], what, spell_count(row.steps))
        )  # fmt: skip
    if not rows:
        return None
    return parts.table(("Trial", "Status", "Trains", "Steps"), rows, label="trials that are compared", numeric=(3,))


def _spell(value: float) -> str:
    return spell_count(value) if abs(value) >= 1000 else f"{value:.4g}"
