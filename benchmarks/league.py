"""What a league costs, and how fast it plays: games of Connect Four and simulations of its search, on one thread.

    python benchmarks/league.py             a table for people
    python benchmarks/league.py --json      the same, then one JSON object on the last line
    python benchmarks/league.py --only matches --rounds 5

All take turns in every round, in one process; medians over the rounds are compared.

matches_vs_openspiel    games a second by a league's matches, of a main agent against itself, ÷ by the faster of
                        OpenSpiel's two loops of self-play, with the same network
matches_vs_pytorch      the same ÷ by boards as tensors in one loop of PyTorch, the best of several batches
opponents_vs_openspiel  as the first, but against 50 snapshots, each a network of its own (OpenSpiel's: one network)
league_ms_per_match     a game in the league, with its service, log, ratings and matchmaking, minus one without them
search_vs_pytorch       simulations a second of the tree search, 256 games at once, ÷ of one written in PyTorch, the
                        same or one game (`benchmarks/search.py`, which has further ratios)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch

import search as search_benchmark
from league_contestants.matches_openspiel import ManyGames, OneGame
from league_contestants.matches_ours import GAME, LeagueGames, PlainGames
from league_contestants.matches_pytorch import BatchedGames
from ludus import envs
from ludus.experiment import config as experiment
from ludus.experiment import wiring
from ludus.learn.policies.policy import Policy

BARS = {"matches_vs_openspiel": 5.0, "search_vs_pytorch": 5.0, "league_ms_per_match": 1.0}
IS_COST = ("league_ms_per_match",)  # the smaller, the better
SNAPSHOTS = 50
OURS, THEIRS, PYTORCH = 256, (16, 64), (64, 256, 1024)


def matches(args: argparse.Namespace, folder: Path) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Ratios, and games a second by contestant and round."""
    module = network()
    settings = {"num_envs": OURS, "num_snapshots": SNAPSHOTS, "games_per_match": 1}
    contestants: dict[str, Any] = {
        "ludus, self-play": LeagueGames(folder / "self", **settings, self_play=True),
        "ludus, 50 opponents": LeagueGames(folder / "league", **settings),
        "ludus, 50 opponents, no books": LeagueGames(folder / "none", **settings, without_books=True),
        "ludus, no players": PlainGames(num_envs=OURS),
        "openspiel, one game": OneGame(module),
        **{f"openspiel, {num} envs": ManyGames(module, num) for num in THEIRS},
        **{f"pytorch, {num} boards": BatchedGames(module, num) for num in PYTORCH},
    }
    for contestant in contestants.values():
        timed(contestant.play, seconds=args.seconds)  # whatever is made when it is first needed
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(args.rounds):
        for name, contestant in contestants.items():
            rates[name].append(timed(contestant.play, seconds=args.seconds))
    for contestant in contestants.values():
        if hasattr(contestant, "close"):
            contestant.close()
    with_books, without = rates["ludus, 50 opponents"], rates["ludus, 50 opponents, no books"]
    own = statistics.median(rates["ludus, self-play"])
    return {
        "matches_vs_openspiel": own / best(rates, "openspiel"),
        "matches_vs_pytorch": own / best(rates, "pytorch"),
        "opponents_vs_openspiel": statistics.median(with_books) / best(rates, "openspiel"),
        "league_ms_per_match": statistics.median(
            1e3 / one - 1e3 / other for one, other in zip(with_books, without, strict=True)
        ),
    }, rates


def network() -> torch.nn.Module:
    """That of the preset, as its players have it."""
    config = experiment.resolve("ppo", GAME)
    return Policy(wiring.make_policy_spec(config, envs.spec(GAME)), seed=1).model


def timed(play: Callable[[], int], *, seconds: float) -> float:
    """Games a second of the process's own time."""
    began, num = time.process_time(), 0
    while time.process_time() - began < seconds:
        num += play()
    return num / (time.process_time() - began)


def best(rates: dict[str, list[float]], whose: str) -> float:
    return max(statistics.median(values) for name, values in rates.items() if name.startswith(whose))


def searches(args: argparse.Namespace, _folder: Path) -> tuple[dict[str, float], dict[str, list[float]]]:
    """The tree search, as in `search.py`, with its plain network."""
    rates = search_benchmark.measure("mlp", rounds=args.rounds, seconds=min(0.5, args.seconds))
    return search_benchmark.ratios_of(rates), {f"search, {name}": values for name, values in rates.items()}


PARTS = {"matches": matches, "search": searches}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each contestant in a round, at least")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    ratios: dict[str, float] = {}
    rates: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="ludus-league-") as folder:
        for part in args.only:
            found = PARTS[part](args, Path(folder))
            ratios |= found[0]
            rates |= found[1]
    for name, values in rates.items():
        what = "simulations/s" if name.startswith("search") else "games/s"
        print(f"{name:<36} {statistics.median(values):>10,.0f} {what}   ({min(values):,.0f} to {max(values):,.0f})")
    for name, value in ratios.items():
        bar = f"   (goal: {'under' if name in IS_COST else 'at least'} {BARS[name]:g})" if name in BARS else ""
        print(f"{name:<36} {value:10.3f}{bar}")
    if args.json:
        versions = {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
        medians = {name: statistics.median(values) for name, values in rates.items()}
        print(json.dumps({"ratios": ratios, "medians": medians, "versions": versions}))
    is_met = (
        value < BARS[name] if name in IS_COST else value >= BARS[name] for name, value in ratios.items() if name in BARS
    )
    return 0 if all(is_met) else 1


if __name__ == "__main__":
    sys.exit(main())
