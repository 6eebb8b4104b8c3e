"""`ludus demo`: two minutes of a Connect Four league with the page open, then a game against its champion.

Where nobody sits at a terminal it ends after the two minutes, and says how to go on.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console

from ludus.cli import page_options
from ludus.cli.extras import expect_installed
from ludus.command_line import command_line, project_words, trial_command
from ludus.telemetry import progress

__all__ = ["GAME", "SECONDS", "run"]

GAME = "board:connect_four"
SECONDS = 120.0
_QUICK_GAME, _QUICK_SECONDS = "board:tic_tac_toe", 4.0
_NUM_SHOWN = 6
_SNAPSHOT_STEPS = 60_000  # more often than by default, so that two minutes have a history


def run(args: argparse.Namespace) -> int:
    expect_installed("torch", extra="train")
    expect_installed("openskill", extra="league")
    console = Console(highlight=False, soft_wrap=True)
    game, seconds = (_QUICK_GAME, _QUICK_SECONDS) if args.quick else (GAME, SECONDS)
    seconds = args.seconds or seconds
    name = f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = Path(args.project) / name
    console.print(
        f"[bold]{game}[/bold]: players train against each other for {seconds:g} s, and are rated as they play.\n"
    )
    with page_options.page_beside(args.project, f"/trials/{quote(name)}") as url:
        assert url is not None
        if sys.stdout.isatty():
            page_options.open_browser(url)
        found = _league(game, args.project, name, seconds=seconds, seed=args.seed)
        _show_standings(console, found)
        board = f"{url}/play"
        if _is_attended():
            console.print(f"\nPlay against the champion: [bold]{board}[/bold]\nCtrl-C ends the demo.")
            page_options.open_browser(board)
            _wait_for_interrupt()
            console.print()
    _say_how_to_go_on(console, folder, game, args.project)
    return 0


def _league(game: str, project: str, name: str, *, seconds: float, seed: int) -> list[dict[str, Any]]:
    """The standings after so long, or after Ctrl-C: the strongest first."""
    from ludus.league import api  # brings torch

    with progress.Progress(None, total_s=seconds) as shown:
        run = api.league(
            game,
            on_progress=shown.update,
            on_status=shown.status,
            project=project,
            trial=name,
            minutes=seconds / 60.0,
            snapshot_steps=_SNAPSHOT_STEPS,
            bots=("random", "alphabeta:2"),
            seed=seed,
        )
    return run.standings


def _show_standings(console: Console, standings: list[dict[str, Any]]) -> None:
    console.print("\nThe strongest now:")
    for number, each in enumerate(standings[:_NUM_SHOWN], 1):
        rating = f"{each['mean']:.1f} ± {1.96 * each['std']:.1f}"
        console.print(f"{number:>3}. {each['name']:<24} rating {rating:<12} {each['win_rate']:.0%} won")


def _is_attended() -> bool:
    """Whether somebody can play now and press Ctrl-C: there is a terminal, and it is not that of a CI job."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")


def _wait_for_interrupt() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return


def _say_how_to_go_on(console: Console, folder: Path, game: str, project: str) -> None:
    words = project_words(project)
    commands = {
        trial_command("play", folder): "play against the champion, or anybody else",
        command_line("dashboard", *([project] if words else [])): "see the page again",
        command_line("league", game, "--trial", folder.name, *words, "--page"): "let it go on",
        command_line("demo", "lander"): "see a lander learn to land",
    }
    console.print("\nTo go on:")
    width = max(map(len, commands))
    for command, what in commands.items():
        console.print(f"  [bold]{command:<{width}}[/bold]   {what}")
