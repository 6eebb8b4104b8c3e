"""`ludus resume TRIAL`: go on with a trial after a stop, a kill or a reboot, from its newest sound checkpoint."""

from __future__ import annotations

import argparse

from ludus.cli import options, outcome
from ludus.experiment import results

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial", metavar="TRIAL", help="its name in the project folder, or the path of its folder")
    options.add_project(parser)
    outcome.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    folder = results.find_trained(args.trial, project=args.project)
    total_steps = int(results.read_config(folder)["train"].get("steps", 1))

    def start(on_progress: outcome.OnProgress, on_status: outcome.OnStatus) -> outcome.Run:
        from ludus.remote import training  # brings torch

        began = outcome.process_began()
        return training.resume(folder, project=args.project, on_progress=on_progress, on_status=on_status, began=began)

    return outcome.follow(start, args, total_steps=total_steps, project=args.project, trial=str(folder))
