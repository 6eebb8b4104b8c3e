"""`ludus arena A B C`: everybody against everybody, on all sides, with intervals.

    ludus arena monday tuesday alphabeta:4 --games 200
    ludus arena main main-3 exploiter --trial league-board-connect_four
    ludus arena random alphabeta:2 --game board:connect_four

    ludus arena monday monday+search:64 alphabeta:4

A player is a trial, TRIAL@PLAYER of a league, or a bot; +search:64 makes one look 64 simulations ahead, +gumbel:64 by
Gumbel roots.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass

from rich import box, text
from rich.console import Console
from rich.table import Table

from ludus.cli import options
from ludus.cli.league import print_payoff
from ludus.experiment.config import MAX_SEED
from ludus.league.game_limits import GAME_MINUTES
from ludus.options import option
from ludus.telemetry import progress

__all__ = ["add_arguments", "run"]


@dataclass(frozen=True, kw_only=True)
class _Games:
    games: int = option(200, help="games of each pair, at least", minimum=2)
    seed: int = option(0, help="seed of the games", minimum=0, maximum=MAX_SEED)
    greedy: bool = option(False, help="play the most likely action instead of a sample")
    env_args: str = option("{}", help='arguments of the game, as JSON: {"random_moves": 4} for openings of board games')
    teams: str | None = option(None, help="sides that one player plays together, as 0+2,1+3; none: as in its league")
    max_game_steps: int = option(
        0, help="give up if a game has more steps; 0: by the rules of the game, or 100,000", minimum=0
    )
    max_game_minutes: float = option(GAME_MINUTES, help="give up if no game ends for so long", minimum=0.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "players",
        nargs="+",
        metavar="PLAYER",
        help="a trial or TRIAL@PLAYER, +search:64 or +gumbel:64 to look ahead, or a bot",
    )
    parser.add_argument("--trial", help="a league whose players are meant")
    parser.add_argument("--game", help="what bots play among themselves")
    options.add_options(parser, _Games())
    options.add_project(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    from ludus.league import arena  # brings torch

    chosen = asdict(_Games()) | options.given_options(args, _Games())
    num_games = chosen.pop("games")
    of_pairs = max(1, num_games * len(args.players) * (len(args.players) - 1) // 2)
    with progress.Progress(of_pairs, unit="games of pairs") as shown:
        found = arena.play_arena(
            args.players,
            num_games=num_games,
            project=args.project,
            trial=args.trial,
            game=args.game,
            on_progress=lambda done, total: shown.update(done * of_pairs // total, {}),
            **chosen,
        )
    names = sorted(found.names, key=lambda name: -found.ratings[name].mean)
    if args.json:
        print(
            json.dumps(
                {
                    "game": found.game,
                    "elo": {name: list(found.ratings[name]) for name in names},
                    "pairs": [
                        {"player": one, "opponent": two, **arena.describe(found.records[one, two])}
                        for one in names
                        for two in names
                        if one != two
                    ],
                }
            )
        )
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, title=found.game)
    table.add_column("")
    table.add_column("player")
    for column in ("Elo", "won", "drawn", "lost", "win rate, 95 %", "on side 0"):
        table.add_column(column, justify="right")
    for number, name in enumerate(names, 1):
        records = [found.records[name, other] for other in names if other != name]
        first = [found.first_side[name, other] for other in names if other != name]
        whole = type(records[0])(*(sum(parts) for parts in zip(*records, strict=True)))
        as_first = type(first[0])(*(sum(parts) for parts in zip(*first, strict=True)))
        rating = found.ratings[name]
        low, high = whole.interval()
        table.add_row(
            str(number),
            text.Text(name),
            f"{rating.mean:+.0f} ± {1.96 * rating.std:.0f}",
            f"{whole.wins:.0f}",
            f"{whole.draws:.0f}",
            f"{whole.losses:.0f}",
            f"{whole.win_rate:.1%} ({low:.1%} to {high:.1%})",
            f"{as_first.win_rate:.1%}",
        )
    console.print(table)
    payoff = {
        "players": list(found.names),
        "win_rate": found.win_rates.tolist(),
        "games": [[0 if a == b else found.records[a, b].games for b in found.names] for a in found.names],
    }
    print_payoff(console, names, payoff)
    return 0
