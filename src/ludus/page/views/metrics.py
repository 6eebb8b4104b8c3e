"""Every metric of a trial by its name, as small charts beside each other."""

from __future__ import annotations

from pathlib import Path

import htpy as h
from htpy import Node

from ludus.page import parts, smoothing
from ludus.page.charts import Series, line_chart
from ludus.page.metric_series import MetricFiles, Metrics, Point
from ludus.page.view import View, Visit
from ludus.page.views.training import AXES, behind, chosen_axis
from ludus.telemetry.metrics_file import METRICS_FILE

__all__ = ["VIEW"]

_MOST_SHOWN = 24


def build(visit: Visit) -> Node:
    """`query`: `name`, a part of names; `group`, what they begin with; `by`; `smooth`."""
    wanted, group = visit.query.get("name", "").strip().lower(), visit.query.get("group", "")
    axis = chosen_axis(visit.query)
    reach = smoothing.CHOICES.get(visit.query.get("smooth", "none"), 0)

    def look(metrics: Metrics) -> tuple[list[str], int, list[tuple[str, list[Point]]], float | None, int]:
        names = metrics.names() or metrics.names("seconds")
        by_seconds = not metrics.names()
        found = [name for name in names if wanted in name.lower() and name.startswith(group)]
        shown = []
        for name in found[:_MOST_SHOWN]:
            series = metrics.series(name, "seconds" if by_seconds else "steps")
            if series is not None:
                shown.append((name, smoothing.smooth(series.points("seconds" if by_seconds else axis), reach)))
        read = metrics.share_read if metrics.is_behind else None
        return names, len(found), shown, read, metrics.num_left_out

    names, num_found, shown, read, num_left_out = visit.site.part(MetricFiles).use(visit.folder, look)
    if not names:
        return h.p(class_="quiet")["No metrics have been written yet."]
    groups = {"": "all", **{each: each for each in sorted({name.partition("/")[0] + "/" for name in names})}}
    return [
        behind(read) if read is not None else None,
        h.form("#choose.row", method="get", action=visit.url(), data_auto=True, role="search")[
            h.span(class_="choice", data_keep="name")[
                h.label(for_="name")["Name has"], h.input("#name", type="search", name="name", value=wanted)
            ],
            parts.choice("group", "Group", groups, group),
            parts.choice("by", "By", AXES, axis),
            parts.choice(
                "smooth", "Smoothing", {each: each for each in smoothing.CHOICES}, visit.query.get("smooth", "none")
            ),
            h.noscript[h.button["Show"]],
        ],
        h.p(class_="quiet")[
            f"{num_found} of {len(names)} metrics"
            + (f"; the first {_MOST_SHOWN} are shown: choose a group or a part of a name." if num_found > _MOST_SHOWN
               else ".")
            + (" Some names were left out: there are too many." if num_left_out else "")
        ],
        h.div(class_="multiples")[
            (
                h.section(id=f"metric-{name}")[
                    h.h2[name], line_chart([Series("now", points)], title=name, x_name=axis, y_name="", is_small=True)
                ]
                for name, points in shown
            )
        ],
    ]  # fmt: skip


def applies(folder: Path) -> bool:
    return (folder / METRICS_FILE).is_file()


VIEW = View(name="metrics", title="Metrics", applies=applies, build=build, every_s=2.0)
