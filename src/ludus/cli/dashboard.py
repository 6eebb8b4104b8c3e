"""`ludus dashboard [PROJECT]`: a page that shows what the trials of a project do, and on which people play.

ludus dashboard                                     # on this machine only
ludus dashboard runs --host 0.0.0.0 --port 8700     # from elsewhere, too, with the token that it prints
"""

from __future__ import annotations

import argparse
import json
import sys

from ludus.cli import options
from ludus.cli.page_options import PageOptions, settings_of

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", metavar="PROJECT", nargs="?", default="trials", help="where trials are")
    options.add_options(parser, PageOptions())
    parser.add_argument("--json", action="store_true", help="say where it listens in one line of JSON")
    parser.add_argument("--fd", type=int, help=argparse.SUPPRESS)  # of a socket that its parent has bound
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)  # the process that the page ends with


def run(args: argparse.Namespace) -> int:
    settings = settings_of(args, project=args.project, fd=args.fd, parent=args.parent)
    from ludus.page.server import Page

    with Page(settings) as page:
        if args.json:
            print(json.dumps({"url": page.url, "port": page.port}), flush=True)
        elif args.parent is None:
            print(f"the page is at {page.url}; Ctrl-C ends it", flush=True)
        page.run()
    if args.parent is None:
        print("the page has ended", file=sys.stderr)
    return 0
