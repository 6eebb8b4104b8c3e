"""`ludus plot TRIAL…`: the learning curve of one or several trials, or other metrics, as a PNG, SVG or PDF.

ludus plot 20261115-201402                              # trials/20261115-201402/learning_curve.png
ludus plot monday tuesday --out both.png
ludus plot monday --metric gateway/steps_per_second --metric gateway/step_s/p95      # trials/monday/metrics.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ludus import errors
from ludus.cli import options
from ludus.telemetry.metrics_file import METRICS_FILE
from ludus.trial.find import find

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trials", metavar="TRIAL", nargs="+", help="names in the project folder, or paths of folders")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="a .png, .svg or .pdf file (default: TRIAL/learning_curve.png)"
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        help="a metric instead of the learning curve, such as gateway/steps_per_second (default file: "
        "TRIAL/metrics.png); may be given several times",
    )
    options.add_project(parser)


def run(args: argparse.Namespace) -> int:
    folders = [_find(name, args.project) for name in args.trials]
    if args.out is None and len(folders) > 1:
        raise errors.ConfigError("several trials are drawn into one file: say which with --out FILE.png.")
    from ludus.experiment import plot

    path = args.out or folders[0] / ("metrics.png" if args.metric else "learning_curve.png")
    print(plot.plot(folders, path, metrics=args.metric))
    return 0


def _find(name: str, project: str) -> Path:
    """Any trial that has metrics: those of scripts have no config.json."""
    for path in (Path(project) / name, Path(name)):
        if (path / METRICS_FILE).is_file() or (path / "merged" / METRICS_FILE).is_file():
            return path.absolute()
    return find(name, project=project, trained=True).path
