"""A learning curve as a file: returns over environment steps, below them speed and lag; several trials side by side.

plot([Path("trials/monday"), Path("trials/tuesday")], Path("both.png"))
plot([Path("trials/monday")], Path("gateway.png"), metrics=["gateway/steps_per_second", "gateway/step_s/p95"])
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus import errors, spelling
from ludus.telemetry.metrics import RESERVED
from ludus.telemetry.metrics_file import METRICS_FILE, axis_of, read_metrics

__all__ = ["FORMATS", "plot"]

FORMATS = (".png", ".svg", ".pdf")

_COLOURS = ("#2a6fb0", "#d1603d", "#3c8d5a", "#8a5aa8", "#b58a1f", "#4a9ba8", "#a84a6e", "#6b6b6b")
_INK, _FAINT = "#333333", "#dddddd"
_SMOOTHING = 0.04  # of all points: how far to each side one is averaged
_AXES = {"steps": "environment steps", "seconds": "seconds since the trial began"}
_MOST_PANELS = 8
_FEW = 6

Lines = list[dict[str, Any]]


class _Curve(NamedTuple):
    steps: NDArray[np.float64]
    values: NDArray[np.float64]


def plot(folders: Sequence[Path], path: Path, *, metrics: Sequence[str] = ()) -> Path:
    """Draw the learning curves of these trials, or the `metrics` that are named, into `path`, and return it.

    Its ending says in which of the `FORMATS`. Raises `ConfigError` for another one, `TrainingError` for a trial that
    has no returns yet or a metric that it does not have, `MissingExtra` without matplotlib.
    """
    if path.suffix.lower() not in FORMATS:
        raise errors.ConfigError(
            f"{path} ends in {path.suffix or 'nothing'}, which is no format of a plot. There are {', '.join(FORMATS)}."
        )
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise errors.MissingExtra("matplotlib", extra="train") from None
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    trials = {name: _read(folder) for name, folder in zip(_names(folders), folders, strict=True)}
    if metrics:
        figure = Figure(dpi=150, layout="constrained", facecolor="white")
        _draw_metrics(figure, trials, metrics)
        return _save(figure, path)
    for lines, folder in zip(trials.values(), folders, strict=True):
        if not (_curve(lines, "episode/return").steps.size or _curve(lines, "eval/return").steps.size):
            raise errors.TrainingError(
                f"{folder / METRICS_FILE} has no return to plot: no episode has ended there yet. Other metrics are "
                f"plotted with --metric NAME; it has {_some(_metric_names(lines))}."
            )
    has_pace = any(_curve(lines, "time/steps_per_second").steps.size for lines in trials.values())
    figure = Figure(figsize=(9.0, 6.4 if has_pace else 4.8), dpi=150, layout="constrained", facecolor="white")
    axes = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1.0]) if has_pace else [figure.subplots()]
    _draw_returns(axes[0], trials)
    if has_pace:
        _draw_pace(axes[1], trials)
    axes[-1].set_xlabel("environment steps", color=_INK)
    _count_steps(axes[-1])
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format=path.suffix[1:].lower())
    return path


def _count_steps(axes: Any) -> None:
    from matplotlib import ticker

    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _count(value)))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10]))


def _draw_metrics(figure: Any, trials: dict[str, Lines], metrics: Sequence[str]) -> None:
    """A panel for each, over what its last line counts: a metric may be written by steps and, later, by seconds."""
    if len(metrics) > _MOST_PANELS:
        raise errors.ConfigError(f"one plot has room for {_MOST_PANELS} metrics, not {len(metrics)}. Draw several.")
    figure.set_size_inches(9.0, 1.8 + 2.6 * len(metrics))
    for axes, metric in zip(figure.subplots(len(metrics), 1, squeeze=False)[:, 0], metrics, strict=True):
        having = {name: [line for line in lines if metric in line] for name, lines in trials.items()}
        if missing := [name for name, lines in having.items() if not lines]:
            known = _metric_names(trials[missing[0]])
            raise errors.TrainingError(
                f"trial {missing[0]!r} has no metric {metric!r}. {spelling.nearest(metric, known)}"
                if known
                else f"trial {missing[0]!r} has no metrics yet."
            )
        _dress(axes, metric)
        axis = axis_of(next(reversed(having.values()))[-1])
        for index, (name, lines) in enumerate(having.items()):
            curve = _curve([line for line in lines if axis_of(line) == axis], metric)
            axes.plot(*curve, color=_COLOURS[index % len(_COLOURS)], linewidth=1.4, marker=".", label=name)
        axes.set_xlabel(_AXES[axis], color=_INK)
        _count_steps(axes)
        axes.legend(loc="best", frameon=False, fontsize=9, labelcolor=_INK)


def _draw_returns(axes: Any, trials: dict[str, list[dict[str, Any]]]) -> None:
    _dress(axes, "return of an episode")
    is_one, has_points = len(trials) == 1, False
    for index, (name, lines) in enumerate(trials.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        raw, evaluated = _curve(lines, "episode/return"), _curve(lines, "eval/return")
        if raw.steps.size:
            axes.plot(raw.steps, raw.values, color=colour, alpha=0.22, linewidth=0.9, zorder=2)
            axes.plot(
                raw.steps, _smooth(raw.values), color=colour, linewidth=2.0, zorder=3,
                label="while training" if is_one else name,
            )  # fmt: skip
        if evaluated.steps.size:
            label = "evaluated" if is_one else (name if not raw.steps.size else None)
            axes.plot(
                *evaluated, "o", color=colour, markersize=6, markeredgecolor="white", markeredgewidth=1.0, label=label,
                zorder=4, clip_on=False,
            )  # fmt: skip
            has_points = True
    title = next(iter(trials)) if is_one else f"{len(trials)} trials"
    axes.set_title(
        title + (" · points: evaluated" if has_points and not is_one else ""), loc="left", color=_INK, fontsize=11
    )
    axes.legend(loc="best", frameon=False, fontsize=9, labelcolor=_INK)


def _draw_pace(axes: Any, trials: dict[str, list[dict[str, Any]]]) -> None:
    """Steps per second as a line, and lag, if any was measured, dashed on an axis of its own."""
    from matplotlib import ticker

    _dress(axes, "steps/s")
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _count(value)))
    axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=3))
    lag_axes = None
    for index, lines in enumerate(trials.values()):
        colour = _COLOURS[index % len(_COLOURS)]
        pace, lag = _curve(lines, "time/steps_per_second"), _curve(lines, "lag/mean")
        axes.plot(*pace, color=colour, linewidth=1.2)
        if lag.steps.size and lag.values.any():
            if lag_axes is None:
                lag_axes = axes.twinx()
                _dress(lag_axes, "lag (dashed)")
                lag_axes.grid(visible=False)
                lag_axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=3))
            lag_axes.plot(lag.steps, _smooth(lag.values), color=colour, linewidth=1.2, linestyle=(0, (3, 2)), alpha=0.8)
    for each in (axes, lag_axes):
        if each is not None:
            each.set_ylim(bottom=0.0)


def _dress(axes: Any, label: str) -> None:
    axes.set_ylabel(label, color=_INK)
    axes.grid(visible=True, color=_FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, labelsize=9, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.margins(x=0.01)


# --- what is drawn


def _read(folder: Path) -> Lines:
    """All lines. Before a trial had one writer, those by seconds were in a folder of their own, or unmarked."""
    lines = read_metrics(folder)
    if not (folder / "config.json").exists() and not any("episode/return" in line for line in lines):
        lines = [{**line, "axis": "seconds"} for line in lines]
    return [*lines, *({**line, "axis": "seconds"} for line in read_metrics(folder / "merged"))]


def _metric_names(lines: Lines) -> list[str]:
    return sorted({name for line in lines for name in line} - RESERVED)


def _some(names: Sequence[str]) -> str:
    return ", ".join([*names[:_FEW], *(["…"] if len(names) > _FEW else [])]) or "none yet"


def _curve(lines: Sequence[dict[str, Any]], name: str) -> _Curve:
    points = [(line["step"], line[name]) for line in lines if isinstance(line.get(name), int | float)]
    array = np.array(points, dtype=np.float64).reshape(-1, 2)
    return _Curve(array[:, 0], array[:, 1])


def _smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each point and its neighbours, as many on the one side as on the other."""
    reach = int(len(values) * _SMOOTHING)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    around = np.minimum(np.minimum(index, index[::-1]), reach)
    smooth: NDArray[np.float64] = (sums[index + around + 1] - sums[index - around]) / (2 * around + 1)
    return smooth


def _names(folders: Sequence[Path]) -> list[str]:
    """The trials' names; with their projects, if two have the same."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) == len(names):
        return names
    return [
        f"{folder.resolve().parent.name}/{name} ({n})"
        for n, (folder, name) in enumerate(zip(folders, names, strict=True), 1)
    ]


def _count(value: float) -> str:
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"
