"""`ludus play TRIAL`: a page with a board, to play against the players of a league or the policy of a training run.

ludus play league-board-connect_four
"""

from __future__ import annotations

import argparse
import json
import sys

from ludus import errors
from ludus.cli import options
from ludus.cli.page_options import PageOptions, open_browser, settings_of
from ludus.trial.find import find

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial", metavar="TRIAL", help="a name in the project folder, or the path of a trial")
    options.add_project(parser)
    options.add_options(parser, PageOptions())
    parser.add_argument("--no-browser", action="store_true", help="only say where the page is")
    parser.add_argument("--json", action="store_true", help="say it in one line of JSON; opens no browser")


def run(args: argparse.Namespace) -> int:
    folder = find(args.trial, project=args.project).path
    settings = settings_of(args, project=str(folder.parent))
    from ludus.page.opponents import board_game_of
    from ludus.page.server import Page

    if board_game_of(folder) is None:
        raise errors.ConfigError(
            f"trial {folder.name!r} is not of a board game: there is no board to play on. Those that can be played are "
            "trials of board:connect_four, board:tic_tac_toe, and of files of yours whose envs have rules"
        )
    with Page(settings) as page:
        url = page.url_of(f"{page.site.trial_url(folder)}/play")
        if args.json:
            print(json.dumps({"url": url, "port": page.port}), flush=True)
        else:
            print(f"play at {url}; Ctrl-C ends it", flush=True)
            if not args.no_browser:
                open_browser(url)
        page.run()
    print("the page has ended", file=sys.stderr)
    return 0
