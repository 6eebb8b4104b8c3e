"""`ludus resume TRIAL`: go on with a trial after a stop, a kill or a reboot, from its newest valid checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

from ludus.cli import league, options, outcome
from ludus.envs import registry as envs_by_name
from ludus.experiment import config as configs
from ludus.experiment import results, saved_config
from ludus.league.config import load
from ludus.league.folder import is_league
from ludus.trial.find import find

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial", metavar="TRIAL", help="a name in the project folder, or the path of a trial")
    options.add_project(parser)
    parser.add_argument(
        "--trust", action="store_true", help="run the code of a trial that was made by others, or on another machine"
    )
    outcome.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    folder = find(args.trial, project=args.project, trained=True).path
    if is_league(folder):
        return _resume_league(folder, args)
    train = results.read_config(folder)["train"]
    total_steps = int(train.get("steps", 1))
    env_args = configs.parse_env_args(train.get("env_args", "{}"), setting="env_args")
    is_clipped = envs_by_name.clips_rewards(train.get("env", "?"), env_args)

    def start(on_progress: outcome.OnProgress, on_status: outcome.OnStatus) -> outcome.Run:
        from ludus.training import api as training  # brings torch

        began = outcome.process_began()
        return training.resume(
            folder, project=args.project, on_progress=on_progress, on_status=on_status, began=began, trust=args.trust
        )

    return outcome.follow(
        start, args, total_steps=total_steps, project=args.project, trial=str(folder), is_clipped=is_clipped
    )


def _resume_league(folder: Path, args: argparse.Namespace) -> int:
    """As `ludus league GAME` of that trial, which goes on until Ctrl-C or for as long as it was given."""
    if args.trust:
        saved_config.trust_config(folder)
    words = [load(folder).game, "--project", str(folder.parent), "--trial", folder.name]
    parser = argparse.ArgumentParser(prog="ludus league")
    league.add_arguments(parser, words)
    return league.run(parser.parse_args([*words, *(["--json"] if args.json else [])]))
