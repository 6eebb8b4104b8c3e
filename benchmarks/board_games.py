"""How strong a league's champion gets: tic-tac-toe without a loss, Connect Four after 15 minutes on two cores.

    python benchmarks/board_games.py                             # both: about 18 minutes
    python benchmarks/board_games.py --only connect_four --minutes 15 --json
    python benchmarks/board_games.py --only connect_four --trial trials/mine     # trains nothing, measures that one

Each game is trained by `ludus.league`: alphazero, a main agent and its past. Then that agent is measured: in
tic-tac-toe against every perfect reply from every opening; in Connect Four by its network alone against bots, and its
moves are compared with a perfect solver's, by the network alone and with a tree search on top. The rating curve goes
to docs/board_games.svg. With --json the last line is one JSON object. It exits with 0 if all bars were met.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import board_strength as strength
from ludus import envs
from ludus.league import api
from ludus.league.folder import FOLDER
from ludus.league.view import VIEW_FILE, read_view
from ludus.telemetry import progress

ROOT = Path(__file__).resolve().parent.parent
PLOT = ROOT / "docs" / "board_games.svg"
GAMES = ("tic_tac_toe", "connect_four")
BARS = {"random": 0.97, "alphabeta:2": 0.90, "alphabeta:4": 0.60}
SIMULATIONS = (64, 256, 800)
TIC_TAC_TOE_MINUTES = 1.5
FIRST_PLY = 10  # earlier positions take the solver seconds each
MAX_SNAPSHOTS = 10
MAIN = "main"  # is measured, as it is at the end, unless another was promoted
ALONE = {"main_exploiters": 0, "league_exploiters": 0}  # all the time is the main agent's
BOTS = ("random", "alphabeta:2")  # players of the Connect Four league: it learns from matches with them, too
SPARE: dict[str, Any] = {
    "snapshot_steps": 2_000_000,  # the fewer snapshots, the more matches are against who is still hard to beat
    "evaluation_share": 0.05,
}


def tic_tac_toe(args: argparse.Namespace, folder: str) -> dict[str, Any]:
    """The champion against perfect play."""
    minutes = min(args.minutes, TIC_TAC_TOE_MINUTES)
    run = train("board:tic_tac_toe", folder, args, minutes=minutes, cores=1, **ALONE)
    rules = envs.rules("board:tic_tac_toe")
    assert rules is not None
    player = strength.open_player(run["trial"], run["champion"])[1]
    found = strength.unbeaten(rules, player)
    return {**run, "trial": str(run["trial"]), **found, "met": found["games_lost"] == 0}


def connect_four(args: argparse.Namespace, folder: str) -> dict[str, Any]:
    """The champion and its league against bots, perfect play, and its own past."""
    run = train("board:connect_four", folder, args, minutes=args.minutes, cores=2, bots=BOTS, **ALONE, **SPARE)
    trial, champion = run["trial"], run["champion"]
    bots = list(BARS)
    by_bot = strength.by_bot(trial, champion, bots, games=args.games, random_moves=args.random_moves)
    drawn = strength.by_bot(
        trial, champion, bots, games=args.games, random_moves=args.random_moves, greedy=False, seed=2
    )
    curve = strength.rating_curve(trial, spread(run["snapshots"]), bots, games=max(20, args.games // 5))
    rising = is_rising(curve)
    agreement = strength.agreements(
        trial, champion, num_positions=args.positions, simulations=SIMULATIONS, first_ply=FIRST_PLY
    )
    history = read_view(trial / FOLDER / VIEW_FILE)
    if curve:
        plot(curve, (history or {}).get("history", {}).get("main", []))
    return {
        **run,
        "trial": str(trial),
        "greedy": by_bot,
        "drawn": drawn,
        "agreement": agreement,
        "curve": curve,
        "elo_of_last_third": rising,
        "met": all(by_bot[bot]["win_rate"] >= bar for bot, bar in BARS.items()) and rising > 0.0,
    }


def train(
    game: str, folder: str, args: argparse.Namespace, *, minutes: float, cores: int, **settings: Any
) -> dict[str, Any]:
    """A league of this game, from nothing; or the one that was given."""
    began = time.monotonic()
    if args.trial is None:
        with progress.Progress(10**12, unit="steps") as shown:
            run = api.league(
                game,
                algorithm=args.algorithm,
                project=folder,
                minutes=minutes,
                seed=args.seed,
                simulators=cores - 1,
                threads=1,
                **settings,
                on_progress=shown.update,
                on_status=shown.status,
            )
        trial = run.trial_dir
    else:
        trial = Path(args.trial)
    view = read_view(trial / FOLDER / VIEW_FILE)
    assert view is not None
    players = view["players"]
    return {
        "trial": trial,
        "seconds": round(time.monotonic() - began, 1),
        "games": view["stats"]["num_games"],
        "steps": sum(each["step"] for each in players if each["role"] not in ("bot", "snapshot")),
        "champion": view.get("champion") or MAIN,
        "snapshots": sorted((each for each in players if each["parent"] == "main"), key=lambda each: each["step"]),
    }


def spread(snapshots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most so many, at equal distances; the last is one of them."""
    if len(snapshots) <= MAX_SNAPSHOTS:
        return snapshots
    last = len(snapshots) - 1
    return [snapshots[round(number * last / (MAX_SNAPSHOTS - 1))] for number in range(MAX_SNAPSHOTS)]


def is_rising(curve: list[dict[str, Any]]) -> float:
    """Elo that the main agent has won in the last third of its steps."""
    points = sorted((each["step"], each["elo"]) for each in curve if each["step"] is not None)
    if len(points) < 3:
        return 0.0
    before = min(points, key=lambda point: abs(point[0] - 2 / 3 * points[-1][0]))
    return round(points[-1][1] - before[1], 1)


def plot(curve: list[dict[str, Any]], history: list[list[float]]) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "ludus"
    chart, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6))
    points = sorted((each["step"], each["elo"], each["std"]) for each in curve if each["step"] is not None)
    steps, elo, std = zip(*points, strict=True)
    left.errorbar([step / 1e6 for step in steps], elo, [1.96 * each for each in std], marker="o", label="main agent")
    for each in curve:
        if each["step"] is None:
            left.axhline(each["elo"], linestyle=":", color="grey")
            left.annotate(each["name"], (0.0, each["elo"]), fontsize=8, va="bottom")
    left.set(xlabel="its steps, millions", ylabel="Elo, random bot = 0", title="its snapshots, in a round-robin")
    if history:
        right.plot([each[0] for each in history], [each[1] for each in history])
    right.set(xlabel="matches counted", ylabel="rating (OpenSkill)", title="main agent, as its league rates it")
    chart.tight_layout()
    chart.savefig(PLOT, metadata={"Date": None})


RUN: dict[str, Callable[[argparse.Namespace, str], dict[str, Any]]] = {
    "tic_tac_toe": tic_tac_toe,
    "connect_four": connect_four,
}


def show(name: str, found: dict[str, Any]) -> None:
    print(f"\n{name}: {'all bars met' if found['met'] else 'BELOW A BAR'}")
    in_all = f"{found['steps']:,} steps, {found['games']:,} games in {found['seconds']:.0f} s"
    print(f"  {in_all}; champion {found['champion']}")
    if name == "tic_tac_toe":
        print(f"  {found['games_lost']} games lost to perfect play, from {found['openings']} openings")
        return
    for way in ("greedy", "drawn"):
        for bot, result in found[way].items():
            bar = f", bar {BARS[bot]:.0%}" if way == "greedy" else ""
            print(
                f"  {way:<7} against {bot:<12} {result['win_rate']:6.1%} ({result['low']:.1%} to {result['high']:.1%}; "
                f"{result['wins']} / {result['draws']} / {result['losses']}){bar}"
            )
    for way, agreed in found["agreement"].items():
        print(
            f"  {way:<11} plays one of the perfect solver's best moves in {agreed['result']:.1%} of "
            f"{agreed['positions']} positions ({agreed['result_where_moves_differ']:.1%} where moves differ), "
            f"{agreed['distance']:.1%} by how soon as well"
        )
    elo = (f"{each['name']} {each['elo']:.0f} ± {1.96 * each['std']:.0f}" for each in found["curve"])
    print(f"  Elo by steps: {', '.join(elo)}")
    print(f"  won in the last third: {found['elo_of_last_third']:+.0f} Elo")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--json", action="store_true", help="one JSON object on the last line")
    add("--only", nargs="+", choices=GAMES, default=list(GAMES))
    add("--minutes", type=float, default=15.0, help="of training of Connect Four (default: %(default)s)")
    add("--games", type=int, default=400, help="against each bot (default: %(default)s)")
    add("--random-moves", type=int, default=4, help="games begin after 0 to so many (default: %(default)s)")
    add("--positions", type=int, default=500, help="compared with the solver's (default: %(default)s)")
    add("--algorithm", default="alphazero", help="default: %(default)s")
    add("--seed", type=int, default=1)
    add("--trial", help="measure this league; trains nothing")
    add("--project", help="where trials stay; else they are thrown away")
    add("--quick", action="store_true", help="a few seconds of each: shows that it works")
    args = parser.parse_args(argv)
    if args.quick:
        args.minutes, args.games, args.positions = 0.2, 20, 30
    if args.trial is not None and len(args.only) > 1:
        parser.error("--trial is of one game: say --only which")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="ludus-board-games-") as temporary:
        for name in args.only:
            results[name] = RUN[name](args, args.project or temporary)
            show(name, results[name])
    results["versions"] = {"system": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
    if args.json:
        print(json.dumps(results))
    return 0 if all(results[name]["met"] for name in args.only) else 1


if __name__ == "__main__":
    sys.exit(main())
