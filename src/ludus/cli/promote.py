"""`ludus promote TRIAL [VERSION]`: new sessions of a server play that version; those that are live keep theirs.

    ludus promote monday 12
    ludus promote league-board-connect_four main-3 --gate          # a player of a league becomes champion

With `--gate` a candidate is promoted only if it beats the champion, and if an exploiter that is trained against it wins
too little. The exit code says which: 0 promoted, 1 refused, 2 it could not be judged (the message says why).
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from ludus import errors
from ludus.cli import options
from ludus.command_line import trial_command
from ludus.league.folder import is_league
from ludus.league.gate_settings import GateSettings
from ludus.telemetry import progress
from ludus.trial.find import find

__all__ = ["add_arguments", "add_common", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "version",
        nargs="?",
        default="latest",
        metavar="VERSION",
        help="a number, a tag or latest; of a league, a player (default: its strongest main agent)",
    )
    gate = parser.add_argument_group("the gate, for leagues")
    gate.add_argument("--gate", action="store_true", help="promote only who is strong enough; exit code 1 if refused")
    options.add_options(gate, GateSettings())


def add_common(parser: argparse.ArgumentParser) -> None:
    """What `promote` and `rollback` share."""
    parser.add_argument("trial", metavar="TRIAL", help="a name in the project folder, or the path of a trial")
    parser.add_argument("--tag", default="production", help="the tag that is moved")
    parser.add_argument("--model", default="policy", help="the model it is a tag of")
    options.add_project(parser)


def run(args: argparse.Namespace) -> int:
    from ludus.serving import promotion
    from ludus.trial import trained

    folder = find(args.trial, project=args.project).path
    if args.gate:
        return _gate(folder, args)
    if args.model == trained.MODEL and is_league(folder):
        player = "NAME" if args.version == "latest" else args.version
        raise errors.ConfigError(
            f"trial {folder.name!r} is a league: {trial_command('promote', folder, player, '--gate')} judges a player "
            f"first, ludus league promote {folder.name} {player} does not"
        )
    if args.model == trained.MODEL and not trained.is_published(folder):
        trained.publish(folder)
    version = int(args.version) if args.version.isdecimal() else args.version
    number = promotion.promote(folder, args.model, version, tag=args.tag)
    print(f"{args.tag} of {args.model} is version {number} now; sessions that are live keep theirs")
    return 0


def _gate(folder: Path, args: argparse.Namespace) -> int:
    from ludus.league import gate  # brings torch

    settings = GateSettings(**(asdict(GateSettings()) | options.given_options(args, GateSettings())))
    candidate = None if args.version == "latest" else args.version
    with progress.Progress(settings.games + settings.exploit_steps, unit="games and steps") as shown:

        def show(doing: str, done: int, total: int) -> None:
            shown.status(f"{doing}: {done:,} of {total:,}")

        verdict = gate.judge(folder, candidate, settings=settings, promotes=True, on_progress=show)
    if (record := verdict.against_champion) is not None:
        low, high = record.interval()
        print(f"against the champion {verdict.champion}: won {record.win_rate:.1%} ({low:.1%} to {high:.1%})")
    elif verdict.champion is not None:
        print(f"{verdict.champion} is the champion already")
    else:
        print("there is no champion to beat yet")
    if (record := verdict.exploited) is not None:
        low, high = record.interval()
        print(f"an exploiter of it won {record.win_rate:.1%} ({low:.1%} to {high:.1%})")
    if verdict.is_passed:
        print(f"{verdict.candidate} is the champion now, and what `ludus serve` has new sessions play")
        return 0
    for reason in verdict.reasons:
        print(f"refused: {reason}")
    return 1
