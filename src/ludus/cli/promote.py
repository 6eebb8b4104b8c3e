"""`ludus promote TRIAL [VERSION]`: new sessions of a server play that version; those that are live keep theirs."""

from __future__ import annotations

import argparse

from ludus.cli import options
from ludus.trial.find import find

__all__ = ["add_arguments", "add_common", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("version", nargs="?", default="latest", metavar="VERSION", help="a number, a tag or latest")


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
    if args.model == trained.MODEL and not trained.is_published(folder):
        trained.publish(folder)
    version = int(args.version) if args.version.isdecimal() else args.version
    number = promotion.promote(folder, args.model, version, tag=args.tag)
    print(f"{args.tag} of {args.model} is version {number} now; sessions that are live keep theirs")
    return 0
