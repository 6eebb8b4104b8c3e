"""Ludus's tree search against one written by hand in PyTorch: simulations of Connect Four a second, on one thread.

    python benchmarks/search.py             a table for people
    python benchmarks/search.py --json      the same, then one JSON object on the last line

All take turns in every round, in one process on one thread; medians over the rounds of simulations per second of CPU
time are compared. The networks have the same weights, and both searches visit the same moves equally often, which is
tried first. `search_vs_pytorch` is for 256 games side by side, against the faster of two searches by hand: one game at
a time, and the leaves of all games in one forward pass. `..._64` is the same for 64 games, `..._1` for one, and
`..._best` compares the best number of games of each. Ludus evaluates no position twice as long as the weights stay the
same, which searches by hand seldom do; `..._remembering` is against one that does, by a dict. The ratios of `cnn` are
those of two convolutions of 32 channels instead of 2x256 MLPs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch

from league_contestants import search_networks
from league_contestants.search_ours import OurSearch
from league_contestants.search_pytorch import PyTorchSearch

SIMULATIONS = 64
GAMES = (64, 256)
BAR = 5.0
OPENINGS = [[], [3], [3, 3], [0, 6, 3, 2], [3, 2, 3, 4, 1, 1], [2, 2, 3, 3], [3, 0, 3, 0, 3]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each contestant in a round, at least")
    parser.add_argument("--networks", nargs="+", choices=("mlp", "cnn"), default=["mlp", "cnn"])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    medians: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for network in args.networks:
        rates = measure(network, rounds=args.rounds, seconds=args.seconds)
        for name, values in rates.items():
            medians[f"{network}/{name}"] = statistics.median(values)
            print(f"{network}  {name:<34} {statistics.median(values):>10,.0f} simulations/s")
        ratios |= ratios_of(rates, "" if network == "mlp" else f"_{network}")
    for name, ratio in ratios.items():
        print(f"{name:<32} {ratio:6.2f}{f'   (goal: {BAR:g})' if name == 'search_vs_pytorch' else ''}")
    if args.json:
        versions = {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
        print(json.dumps({"ratios": ratios, "medians": medians, "versions": versions}))
    return 0 if ratios.get("search_vs_pytorch", BAR) >= BAR else 1


def measure(network: str, *, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Simulations a second, by contestant and round."""
    evaluate, module = search_networks.make(network)
    expect_alike(evaluate, module)
    contestants: dict[str, Callable[[], int]] = {}
    for games in (1, *GAMES):
        label = f"{games} game{'s' if games > 1 else ''}"
        contestants[f"ludus, {label}"] = OurSearch(evaluate, num_games=games, simulations=SIMULATIONS).move
        contestants[f"pytorch, {label}"] = PyTorchSearch(module, num_games=games, simulations=SIMULATIONS).move
        remembering = PyTorchSearch(module, num_games=games, simulations=SIMULATIONS, remembers=True)
        contestants[f"remembering pytorch, {label}"] = remembering.move
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for move in contestants.values():
        move()  # whatever is made when it is first needed
    for _ in range(rounds):
        for name, move in contestants.items():
            gc.freeze()  # the garbage collector is on, as it usually is, but does not look at the trees of the others
            began, num = time.process_time(), 0
            while time.process_time() - began < seconds:
                num += move()
            rates[name].append(num / (time.process_time() - began))
    return rates


def expect_alike(evaluate: Any, module: Any) -> None:
    """Both are one algorithm: the same visits, but for where float32 and float64 differ about what is better."""
    ours = OurSearch(evaluate, num_games=1, simulations=SIMULATIONS)
    theirs = PyTorchSearch(module, num_games=1, simulations=SIMULATIONS)
    for moves in OPENINGS:
        found, expected = ours.visits(moves), theirs.visits(moves)
        if sum(abs(a - b) for a, b in zip(found, expected, strict=True)) > SIMULATIONS // 8:
            raise SystemExit(f"after {moves} ludus visits {found} and the search by hand {expected}: not one algorithm")


def ratios_of(rates: dict[str, list[float]], suffix: str = "") -> dict[str, float]:
    """See the top of this file."""
    middle = {name: statistics.median(values) for name, values in rates.items()}
    name, found = f"search_vs_pytorch{suffix}", {}
    for games in GAMES:
        theirs = max(middle["pytorch, 1 game"], middle[f"pytorch, {games} games"])
        found[name if games == GAMES[-1] else f"{name}_{games}"] = middle[f"ludus, {games} games"] / theirs
    most = f"{GAMES[-1]} games"
    found[f"{name}_remembering"] = middle[f"ludus, {most}"] / middle[f"remembering pytorch, {most}"]
    found[f"{name}_best"] = best(rates, "ludus") / best(rates, "pytorch")
    found[f"{name}_1"] = middle["ludus, 1 game"] / middle["pytorch, 1 game"]
    return found


def best(rates: dict[str, list[float]], whose: str) -> float:
    return max(statistics.median(values) for name, values in rates.items() if name.startswith(whose))


if __name__ == "__main__":
    sys.exit(main())
