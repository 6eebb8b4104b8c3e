"""`ludus plot TRIAL…`: the learning curve of one or several trials, as a PNG, SVG or PDF.

ludus plot 20261115-201402                              # trials/20261115-201402/learning_curve.png
ludus plot monday tuesday --out both.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ludus import errors
from ludus.cli import options
from ludus.trial.find import find

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trials", metavar="TRIAL", nargs="+", help="names in the project folder, or paths of folders")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="a .png, .svg or .pdf file (default: TRIAL/learning_curve.png)"
    )
    options.add_project(parser)


def run(args: argparse.Namespace) -> int:
    folders = [find(name, project=args.project, trained=True).path for name in args.trials]
    if args.out is None and len(folders) > 1:
        raise errors.ConfigError("several trials are drawn into one file: say which with --out FILE.png.")
    from ludus.experiment import plot

    print(plot.plot(folders, args.out or folders[0] / "learning_curve.png"))
    return 0
