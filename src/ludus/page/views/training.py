"""A training run: how well it plays, how fast it is, which stage is the slowest, lag and buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import htpy as h
from htpy import Node

from ludus.errors import TrainingError
from ludus.experiment.results import CONFIG_FILE, read_config
from ludus.page import parts, smoothing
from ludus.page.charts import Series, line_chart
from ludus.page.frame import note
from ludus.page.metric_series import Axis, MetricFiles, Metrics, Point
from ludus.page.spell import spell_age, spell_count
from ludus.page.stages import RATE, Bottleneck, Stage, find_bottleneck, simulator_stages, stages_of
from ludus.page.trials import TrialIndex, TrialRow
from ludus.page.view import View, Visit

__all__ = ["AXES", "VIEW", "behind", "chosen_axis", "options", "spell_return"]

AXES: Mapping[str, str] = {"steps": "environment steps", "seconds": "seconds of training"}
_CURVES = {"episode/return": "training", "eval/return": "evaluated"}
_MOST_AGENTS = 6
_MATCHES = "league/matches_per_second"
_MEANS = ("time/", "lag/", "model/", "simulator/")  # what jumps from line to line


@dataclass(frozen=True, kw_only=True)
class _Look:
    """What was read of the metrics at one look."""

    share_read: float
    is_behind: bool
    curves: dict[str, list[Point]]
    bands: dict[str, list[float]]
    rate: list[Point]
    lag: dict[str, list[Point]]
    values: dict[str, float]  # of the last line, or means of the last few
    per_second: dict[str, float]  # of totals


def build(visit: Visit) -> Node:
    axis = chosen_axis(visit.query)
    reach = smoothing.CHOICES.get(visit.query.get("smooth", "none"), 0)
    row = visit.site.part(TrialIndex).row(visit.folder)
    look = visit.site.part(MetricFiles).use(visit.folder, lambda metrics: _look(metrics, axis, reach))
    stages = stages_of(look.values)
    return [
        behind(look.share_read) if look.is_behind else None,
        _numbers(row, look.values, look.curves),
        _bottleneck(find_bottleneck(look.values, stages), row),
        options(visit),
        line_chart(
            [Series(name, points, look.bands.get(name)) for name, points in look.curves.items()],
            title="Learning curve", x_name=AXES[axis], y_name="return", spell_y=spell_return,
        ),
        _stages("Stages", stages),
        _stages("Simulators", simulator_stages(look.values)),
        h.div(class_="multiples two")[_throughput(look, axis), _lag(look, axis)],
        _buffers(look.values, look.per_second, _replay_capacity(visit.folder)),
        _models(look.values),
    ]  # fmt: skip


def behind(share_read: float) -> Node:
    """A long file is still being read."""
    return h.p("#reading", class_="note", data_soon="0.2")[f"Reading metrics: {share_read:.0%}"]


def chosen_axis(query: Mapping[str, str]) -> Axis:
    return "seconds" if query.get("by") == "seconds" else "steps"


def options(visit: Visit) -> Node:
    return h.form("#options.row", method="get", action=visit.url(), data_auto=True)[
        parts.choice("by", "By", AXES, chosen_axis(visit.query)),
        parts.choice(
            "smooth", "Smoothing", {each: each for each in smoothing.CHOICES}, visit.query.get("smooth", "none")
        ),
        h.noscript[h.button["Show"]],
    ]


def spell_return(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _look(metrics: Metrics, axis: Axis, reach: int) -> _Look:
    names = metrics.names()
    agents = [name for name in names if name.startswith("episode/return/")]
    wanted = {**_CURVES, **{name: name.rpartition("/")[2] for name in agents[:_MOST_AGENTS]}}
    if len(agents) > 1:  # where agents compete their mean is 0 by the rules
        del wanted["episode/return"]
    curves = {
        text: smoothing.smooth(points, 0 if name.startswith("eval/") else reach)
        for name, text in wanted.items()
        if (points := metrics.points(name, axis))
    }
    stds = [std for _, std in metrics.points("eval/return_std", axis)]
    has_band = "evaluated" in curves and len(stds) == len(curves["evaluated"])
    every = [(name, series) for name in names if (series := metrics.series(name)) is not None]
    return _Look(
        share_read=metrics.share_read,
        is_behind=metrics.is_behind,
        curves=curves,
        bands={"evaluated": stds} if has_band else {},
        rate=smoothing.smooth(metrics.points(RATE, axis), reach),
        lag={name.removeprefix("lag/"): metrics.points(name, axis) for name in names if name.startswith("lag/")},
        values={name: series.recent() if name.startswith(_MEANS) else series.last for name, series in every},
        per_second={name: rate for name, series in every if (rate := series.rate()) is not None},
    )


def _numbers(row: TrialRow, values: Mapping[str, float], curves: Mapping[str, list[Point]]) -> Node:
    is_bounded = row.total_steps is not None and row.total_steps < 10**12
    steps = spell_count(row.steps) + (f" of {spell_count(row.total_steps or 0)}" if is_bounded else "")
    shown: list[tuple[str, Node]] = [
        ("status", h.span(class_=f"badge {row.status}")[row.status]),
        ("algorithm", f"{row.algorithm} {row.env}".strip()),
        ("steps", steps),
    ]
    if RATE in values:
        shown.append(("steps/s", spell_count(values[RATE])))
        if row.status == "running" and is_bounded and values[RATE] > 0:
            left_s = max(0, (row.total_steps or 0) - row.steps) / values[RATE]
            shown.append(("left", spell_age(left_s)))
    if _MATCHES in values:
        shown.append(("matches/s", _rate(values[_MATCHES])))
    shown += [(f"return, {name}", spell_return(points[-1][1])) for name, points in curves.items() if points]
    if "evaluated" not in curves and "eval/return" in values:
        shown.append(("return, evaluated", spell_return(values["eval/return"])))
    if "lag/mean" in values:
        shown.append(("lag", f"{values['lag/mean']:.1f} versions"))
    return parts.numbers(shown)


def _bottleneck(found: Bottleneck | None, row: TrialRow) -> Node:
    if found is None:
        text = "Nothing is said of where its time goes yet." if row.status == "running" else "It left no timings."
        return h.p(class_="quiet")[text]
    is_over = row.status != "running"
    return note(
        "",
        more=[
            h.strong[f"Bottleneck{', when it ran' if is_over else ''}: {found.name}. "],
            found.reason[:1].upper(),
            found.reason[1:],
        ],
    )


def _stages(title: str, stages: list[Stage]) -> Node:
    if not stages:
        return None
    worst = stages[0]
    return [
        h.h2[title],
        parts.table(
            ("Stage", "Share of time", "Alone, steps/s"),
            [
                (
                    stage.name,
                    parts.bar(stage.share, is_worst=stage is worst),
                    "" if stage.pace is None else spell_count(stage.pace),
                )
                for stage in stages
                if stage.share >= 0.0005
            ],
            label=title.lower(),
            numeric=(2,),
        ),
    ]


def _throughput(look: _Look, axis: Axis) -> Node:
    if not look.rate:
        return None
    drawn = line_chart(
        [Series("steps/s", look.rate)], title="Throughput", x_name=AXES[axis], y_name="steps/s", is_small=True
    )
    return h.section("#throughput")[h.h2["Throughput"], drawn]


def _lag(look: _Look, axis: Axis) -> Node:
    if not look.lag:
        return None
    drawn: Node = h.p(class_="quiet")["None: what is learnt from was made by the newest weights."]
    if any(value for points in look.lag.values() for _, value in points):
        series = [Series(name, points) for name, points in look.lag.items()]
        drawn = line_chart(series, title="Lag", x_name=AXES[axis], y_name="versions", is_small=True)
    return h.section("#lag")[h.h2["Lag of the weights"], drawn]


def _replay_capacity(folder: Path) -> float | None:
    """Of the trainer's replay table, if it has one."""
    try:
        capacity = read_config(folder).get("algorithm", {}).get("capacity")
    except (TrainingError, AttributeError):
        return None
    return capacity if isinstance(capacity, int) else None


def _buffers(values: Mapping[str, float], per_second: Mapping[str, float], replay_capacity: float | None) -> Node:
    """Queues and replay tables: what is in them, what comes and goes, and who waits."""
    rows: list[tuple[Node, ...]] = []
    for name in _owners(values, "buffer", "size"):
        own = f"buffer/{name}/"
        rows.append(
            (name, _fill(values, f"{own}size", values.get(f"{own}capacity")),
             _rate(values.get(f"{own}pushed_per_second")),
             _rate(values.get(f"{own}taken_per_second")), _queue_note(values, own))
        )  # fmt: skip
    if "count/segments_pushed" in values and not rows:
        trained = per_second.get("count/segments_trained")
        late = [f"{values.get(f'count/segments_{what}', 0):.0f} {what}" for what in ("stale", "duplicate")]
        rows.append(
            ("segments", _count(values, "count/segments_queued"), _rate(per_second.get("count/segments_pushed")),
             _rate(trained), ", ".join(late))
        )  # fmt: skip
    if "count/replay_size" in values:
        ratio = values.get("count/samples_per_insert")
        rows.append(
            ("replay", _fill(values, "count/replay_size", replay_capacity),
             _rate(per_second.get("count/replay_inserted")), _rate(per_second.get("count/replay_sampled")),
             "" if ratio is None else f"limiter: {ratio:.3g} samples per insert so far")
        )  # fmt: skip
    if "count/dataset_steps" in values:
        drawn = _rate(per_second.get("count/dataset_drawn"))
        rows.append(("datasets", _count(values, "count/dataset_steps"), "", drawn, "read only"))
    if not rows:
        return None
    return [
        h.h2["Buffers"],
        parts.table(("Buffer", "Items", "In/s", "Out/s", ""), rows, label="buffers", numeric=(1, 2, 3)),
    ]


def _queue_note(values: Mapping[str, float], own: str) -> str:
    words = []
    if waiting := values.get(f"{own}waiting_producers"):
        words.append(f"full: {waiting:.0f} producers wait")
    words += [f"{values[own + what]:,.0f} {what}" for what in ("dropped", "duplicates") if values.get(own + what)]
    return ", ".join(words)


def _models(values: Mapping[str, float]) -> Node:
    names = _owners(values, "model", "rows_per_second")
    if not names:
        return None
    rows = [
        (
            name,
            parts.bar(values.get(f"model/{name}/busy", 0.0)),
            _rate(values.get(f"model/{name}/rows_per_second")),
            _rate(values.get(f"model/{name}/batch_rows")),
            _count(values, f"model/{name}/pending"),
        )
        for name in names
    ]
    columns = ("Model", "Busy", "Rows/s", "Rows in a batch", "Calls that wait")
    return [h.h2["Inference"], parts.table(columns, rows, label="inference", numeric=(2, 3, 4))]


def _owners(values: Mapping[str, float], kind: str, what: str) -> list[str]:
    found = (name.split("/") for name in values if name.startswith(f"{kind}/") and name.endswith(f"/{what}"))
    return sorted("/".join(words[1:-1]) for words in found)


def _fill(values: Mapping[str, float], name: str, capacity: float | None) -> str:
    return _count(values, name) + (f" of {spell_count(capacity)}" if capacity else "")


def _count(values: Mapping[str, float], name: str) -> str:
    return spell_count(values[name]) if name in values else ""


def _rate(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if value < 100 else spell_count(value)


def applies(folder: Path) -> bool:
    return (folder / CONFIG_FILE).is_file()


VIEW = View(name="training", title="Training", applies=applies, build=build)
