"""`ludus rollback TRIAL`: take the last promotion back."""

from __future__ import annotations

import argparse

from ludus.cli.promote import add_common

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    from ludus.remote import promotion, training

    folder = training.find(args.trial, args.project).path
    number = promotion.rollback(folder, args.model, tag=args.tag)
    print(f"{args.tag} of {args.model} is version {number} again; sessions that are live keep theirs")
    return 0
