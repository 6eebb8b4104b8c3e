"""`ludus rollback TRIAL`: take the last promotion back."""

from __future__ import annotations

import argparse

from ludus.cli.promote import add_common
from ludus.league.folder import refuse_policy_of_league
from ludus.trial.find import find

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    from ludus.serving import promotion

    folder = find(args.trial, project=args.project).path
    refuse_policy_of_league(folder, args.model)
    number = promotion.rollback(folder, args.model, tag=args.tag)
    print(f"{args.tag} of {args.model} is version {number} again; sessions that are live keep theirs")
    return 0
