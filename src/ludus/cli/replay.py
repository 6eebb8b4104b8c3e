"""`ludus replay LOG`: play recorded sessions again through today's actors; say where the first answer differs."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
from pathlib import Path
from typing import Any

from ludus import errors
from ludus.cli.serve import parse_arguments
from ludus.gateway import record, replay

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="LOG", help="a file of recordings/ in the trial's folder")
    parser.add_argument("--actor", metavar="MODULE:CLASS", help="actor to use instead of the recorded one")
    parser.add_argument("--actor-args", default=None, metavar="JSON", help="arguments of that actor, as a JSON object")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of sentences")


def run(args: argparse.Namespace) -> int:
    try:
        head, steps = record.read_recording(Path(args.log))
    except OSError as error:
        raise errors.DataError(
            f"{args.log} cannot be read: {error.strerror}. A recording is a file of recordings/ in its trial's folder"
        ) from None
    make_actor = _actor(args, head)
    report = asyncio.run(replay.replay(steps, make_actor))
    if args.json:
        first = None if report.first is None else str(report.first)
        print(
            json.dumps(
                {
                    "sessions": report.num_sessions,
                    "steps": report.num_steps,
                    "different": report.num_different,
                    "first_difference": first,
                }
            )
        )
    else:
        print(f"{report.num_sessions} sessions, {report.num_steps} steps: {report.num_different} answers differ")
        if report.first is not None:
            print(f"the first: {report.first}")
    return 1 if report.num_different else 0


def _actor(args: argparse.Namespace, head: dict[str, Any]) -> Any:
    """The actor class as it is now, with the arguments that it was served with, in its trial."""
    from ludus.launch import spec as specs
    from ludus.program.folder import TrialFolder
    from ludus.serving.serve import load_actor
    from ludus.trial.init import init

    folder = TrialFolder(Path(head.get("trial", "")))
    made: Any = None
    given: dict[str, Any] = {}
    positional: tuple[Any, ...] = ()
    spec_file = folder.spec_file(head.get("worker", ""))
    if spec_file.is_file():
        _cls, (_options, made, positional, given), _kwargs = specs.read_spec(spec_file).unpack()
        init(project=folder.path.parent, trial=folder.path.name)
    if args.actor is not None:
        made, positional, given = load_actor(args.actor), (), {}
    if args.actor_args is not None:
        given = parse_arguments(args.actor_args)
    if made is None:
        raise errors.ConfigError(f"{args.log} does not tell which actor it was; give --actor MODULE:CLASS")
    return functools.partial(made, *positional, **given)
