"""`ludus ctl TRIAL COMMAND`: look at and command the workers of a running trial.

    ludus ctl 20261115-201402 list
    ludus ctl 20261115-201402 pause --workers 'policy/.*'
    ludus ctl 20261115-201402 reconfigure --workers trainer/0 --set lr=1e-4

From any shell that can read the trial's folder and reach its workers.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box, text
from rich.console import Console
from rich.table import Table

from ludus import errors, spelling
from ludus.trial.control import control
from ludus.trial.find import find
from ludus.workers import panel as panels

__all__ = ["add_arguments", "run"]

_COMMANDS = {
    "list": "every worker and how it is",
    "ping": "ask for a sign of life",
    "stats": "each worker's metrics",
    "pause": "go on answering, but do no work",
    "resume": "end a pause",
    "restart": "exit and be started again by the driver; uses up no restarts",
    "reconfigure": "change settings given by --set",
    "exit": "finish and go; a worker that was asked is not started again",
}
_COLUMNS = {  # what is shown of an answer, beside the worker; metrics: everything else in it
    "list": ("status", "pid", "uptime_s"),
    "ping": ("status", "pid", "uptime_s", "since_poll_s"),
    "stats": ("status", "metrics"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "commands:\n" + "\n".join(f"  {name:<12} {what}" for name, what in _COMMANDS.items())
    parser.add_argument("trial", metavar="TRIAL", help="a name in the project folder, or the path of a trial")
    parser.add_argument("action", metavar="COMMAND", type=_command, help="one of the commands below")
    parser.add_argument("--workers", metavar="REGEX", type=_regex, help="only workers whose whole name matches")
    parser.add_argument("--project", metavar="DIR", default="trials", help="where trials are (default: trials)")
    parser.add_argument("--timeout", metavar="S", type=float, default=5.0, help="seconds to wait (default: 5)")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", dest="settings", type=_setting, action="append", default=[],
        help="a setting for reconfigure; the value is read as JSON, or else as text",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print one row for each worker. Returns 0 if all of them obeyed, 1 if any did not."""
    if bool(args.settings) != (args.action == "reconfigure"):
        print("ludus ctl: reconfigure needs --set KEY=VALUE, and nothing else takes it", file=sys.stderr)
        return 2
    folder = find(args.trial, project=args.project)
    with control(folder) as workers:
        there = workers.there()
        known = workers.known()
        # who is on its way up or hung has no name, and can be restarted all the same
        chosen = _choose({*there, *known} if args.action == "restart" else there, args.workers)
        if args.action == "restart":
            outcomes = workers.restart(chosen, timeout_s=args.timeout)
        else:
            command = "ping" if args.action == "list" else args.action
            kwargs = {"config": dict(args.settings)} if args.settings else {}
            outcomes = workers.ask(command, chosen, kwargs, timeout_s=args.timeout, known=known)
    absent = {}
    if args.action == "list":
        absent = {
            worker: known.get(worker, {})
            for worker in _choose(set(folder.load_worker_names()) - set(chosen), args.workers)
        }
    if not outcomes and not absent:
        raise errors.ProgramError(f"there is no worker to {args.action}: {_why_none(there, args.workers)}")
    _print_table(args.action, outcomes, absent)
    return 0 if all(outcome.ok for outcome in outcomes) else 1


def _choose(workers: Iterable[str], regex: str | None) -> list[str]:
    return [worker for worker in sorted(workers) if regex is None or re.fullmatch(regex, worker)]


def _why_none(there: Sequence[str], regex: str | None) -> str:
    if regex is None:
        return "none has said where it is."
    return f"none there has a name that is wholly matched by {regex!r}. There are: {', '.join(there) or 'none'}."


# ---- what is shown


def _print_table(action: str, outcomes: Sequence[panels.Outcome], absent: Mapping[str, Mapping[str, Any]]) -> None:
    columns = _COLUMNS.get(action, ("result",))
    table = Table("worker", *columns, box=box.SIMPLE_HEAD)
    rows = {outcome.worker: _row(action, columns, outcome) for outcome in outcomes}
    rows |= {worker: [text.Text(_absence(known), style="yellow")] for worker, known in absent.items()}
    for worker in sorted(rows):
        table.add_row(worker, *rows[worker])
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _absence(known: Mapping[str, Any]) -> str:
    """Why a worker has no name, as far as its driver knows."""
    if not known or known["phase"] in ("done", "exited"):
        return "not there"
    reason = f": {known['last_end'].splitlines()[0]}" if known["last_end"] else ""
    return f"not there ({known['phase']}{reason})"


def _row(action: str, columns: Sequence[str], outcome: panels.Outcome) -> list[text.Text]:
    if outcome.error is not None:
        first_line = (str(outcome.error).splitlines() or [type(outcome.error).__name__])[0]
        return [text.Text(f"failed: {first_line}", style="red")]
    if action not in _COLUMNS:
        return [text.Text("done", style="green")]
    value = dict(outcome.value)
    row = [text.Text(_show(value.pop(column, ""))) for column in columns if column != "metrics"]
    if "metrics" in columns:
        row.append(text.Text("  ".join(f"{key}={_show(item)}" for key, item in value.items())))
    return row


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---- arguments


def _command(word: str) -> str:
    if word not in _COMMANDS:
        raise argparse.ArgumentTypeError(f"there is no {word!r}. {spelling.nearest(word, _COMMANDS)}")
    return word


def _regex(word: str) -> str:
    try:
        re.compile(word)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{word!r} is not a regular expression: {error}") from None
    return word


def _setting(word: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{word!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
