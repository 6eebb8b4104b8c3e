"""`ludus list`: the trials of a project: how far they are, and the returns they reached.

The returns are those of greedy and of sampled play in the evaluation at the end, and that of training. Where agents
compete, the share of games won against random play.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich import box, text
from rich.console import Console
from rich.table import Table

from ludus.cli import options
from ludus.command_line import command_line
from ludus.experiment import results
from ludus.trial.find import find_all

__all__ = ["add_arguments", "run"]

_STATUS = {  # → what is shown, and its colour
    "running": ("running", "cyan"),
    "ended": ("ended", "green"),
    "stopped": ("stopped: resumable", "yellow"),
    "lost": ("stopped: no checkpoint", "red"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_project(parser)


def run(args: argparse.Namespace) -> int:
    folders = find_all(args.project, trained=True)
    if not folders:
        begin = command_line("train", "ppo", "CartPole-v1")
        print(f"There are no trials in {Path(args.project).absolute()}. Begin one with: {begin}")
        return 0
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("trial", "algorithm", "environment"):
        table.add_column(column)
    for column in ("seed", "steps", "greedy", "sampled", "training"):  # the last three are returns
        table.add_column(column, justify="right")
    trials = [results.summarise(folder.path) for folder in folders]
    has_matches = any(trial.vs_random is not None for trial in trials)
    if has_matches:
        table.add_column("vs random", justify="right")
    table.add_column("status")
    table.add_column("age", justify="right")
    for trial in trials:
        table.add_row(*_row(trial, has_matches=has_matches))
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    return 0


def _row(trial: results.TrialSummary, *, has_matches: bool) -> list[text.Text]:
    status, colour = _STATUS[trial.status]
    total = "" if trial.total_steps is None else f" / {trial.total_steps:,}"
    return [
        text.Text(trial.name),
        text.Text(trial.algorithm),
        text.Text(trial.env),
        text.Text("" if trial.seed is None else str(trial.seed)),
        text.Text(f"{trial.steps:,}{total}"),
        *(
            text.Text("" if value is None or _is_by_rules(trial, value) else results.spell_return(value))
            for value in (trial.greedy_return, trial.sampled_return)
        ),
        text.Text(_training_return(trial)),
        *([text.Text("" if trial.vs_random is None else f"won {trial.vs_random:.0%}")] if has_matches else []),
        text.Text(status, style=colour),
        text.Text(_age(trial.age_s)),
    ]


def _is_by_rules(trial: results.TrialSummary, value: float) -> bool:
    """In a zero-sum game the mean return of all agents is always 0."""
    return trial.vs_random is not None and abs(value) < 1e-6


def _training_return(trial: results.TrialSummary) -> str:
    value = trial.training_return
    if value is None or _is_by_rules(trial, value):
        return ""
    return f"{results.spell_return(value)}{' clipped' if trial.is_clipped else ''}"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
