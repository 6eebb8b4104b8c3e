"""A learning curve as a file: returns over environment steps, below them speed and lag; several trials side by side.

plot([Path("trials/monday"), Path("trials/tuesday")], Path("both.png"))
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.telemetry.metrics_file import METRICS_FILE, read_metrics

__all__ = ["FORMATS", "plot"]

FORMATS = (".png", ".svg", ".pdf")

_COLOURS = ("#2a6fb0", "#d1603d", "#3c8d5a", "#8a5aa8", "#b58a1f", "#4a9ba8", "#a84a6e", "#6b6b6b")
_INK, _FAINT = "#333333", "#dddddd"
_SMOOTHING = 0.04  # of all points: how far to each side one is averaged


class _Curve(NamedTuple):
    steps: NDArray[np.float64]
    values: NDArray[np.float64]


def plot(folders: Sequence[Path], path: Path) -> Path:
    """Draw the learning curves of these trials into `path`, and return it.

    Its ending says in which of the `FORMATS`. Raises `ConfigError` for another one, `TrainingError` for a trial that
    has no returns yet, `MissingExtra` without matplotlib.
    """
    if path.suffix.lower() not in FORMATS:
        raise errors.ConfigError(
            f"{path} ends in {path.suffix or 'nothing'}, which is no format of a plot. There are {', '.join(FORMATS)}."
        )
    try:
        from matplotlib import ticker
        from matplotlib.figure import Figure
    except ImportError:
        raise errors.MissingExtra("matplotlib", extra="train") from None
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    trials = {name: read_metrics(folder) for name, folder in zip(_names(folders), folders, strict=True)}
    for lines, folder in zip(trials.values(), folders, strict=True):
        if not (_curve(lines, "episode/return").steps.size or _curve(lines, "eval/return").steps.size):
            raise errors.TrainingError(
                f"{folder / METRICS_FILE} has no return to plot: no episode has ended there yet."
            )
    has_pace = any(_curve(lines, "time/steps_per_second").steps.size for lines in trials.values())
    figure = Figure(figsize=(9.0, 6.4 if has_pace else 4.8), dpi=150, layout="constrained", facecolor="white")
    axes = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1.0]) if has_pace else [figure.subplots()]
    _draw_returns(axes[0], trials)
    if has_pace:
        _draw_pace(axes[1], trials)
    axes[-1].set_xlabel("environment steps", color=_INK)
    axes[-1].xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _count(value)))
    axes[-1].xaxis.set_major_locator(ticker.MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10]))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format=path.suffix[1:].lower())
    return path


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
