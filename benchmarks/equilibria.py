"""Games in which nothing is strongest: plain self-play beside a league whose mixture is an equilibrium; and poker
against exact answers, with OpenSpiel as referee.

    python benchmarks/equilibria.py                                 # all; some ten minutes of one core
    python benchmarks/equilibria.py --only rps disc --seeds 1-5
    python benchmarks/equilibria.py --plot docs --report            # plots, and the tables of docs/league_results.md
    python benchmarks/equilibria.py --json                          # one JSON object on the last line

| game | what is run | bar |
|---|---|---|
| rps, biased, disc | `rules=psro`, the mixture of all snapshots | exploitability below 0.05 |
| | `rules=self_play`, the player after each 4,096 steps (disc: 8,192) | its exploitability stays above 0.3 |
| kuhn-exact | `rules=psro oracle=exact` | NashConv below 0.001 |
| kuhn, leduc | `rules=psro`, PPO responds | NashConv below 0.1 and 1.0; uniform play has 0.917 and 4.747 |

Both have the same budget: self-play learns from as many steps as the league learns from and evaluates with, together.

All are runs of `ludus league` in this process, judged afterwards from what is in their folders: the snapshots' networks
and the league's mixture. Nothing is sampled in the judgement but the mean action of a policy on the disc (20,000
draws). "Stays above" is the least over all snapshots of the second half of the steps. A run becomes a line of the file
of results when it is over; started again, only runs that are not in there are made. Exits with 0 if all bars are met.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import itertools
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from ludus.envs.matrix.games import BIASED_RPS, RPS, Disc
from ludus.envs.openspiel.named import tree_of
from ludus.league import config as configs
from ludus.league.api import league
from ludus.league.live import open_league
from ludus.league.oracle import make_seats
from ludus.league.players import Player, player_of
from ludus.league.pools import open_pool
from ludus.league.psro.behaviour import probabilities, table_of
from ludus.league.psro.tabular_game import TabularGame
from ludus.testing.spiel_referee import nash_conv

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "league_results.md"
OUT = ROOT / "trials" / "equilibria" / "results.jsonl"
BEGIN, END = "<!-- equilibria: begin -->", "<!-- equilibria: end -->"
CYCLES_ABOVE, MIXTURE_BELOW = 0.3, 0.05

ONE_MOVE: dict[str, Any] = {
    "num_envs": 64, "num_steps": 8, "minibatch_size": 256, "hidden": (16,), "games_per_match": 8, "turn_updates": 2,
    "learning_rate": 5e-3, "snapshot_steps": 4096, "steps": 49_152, "evaluation_games": 200,
}  # fmt: skip
MATRICES = {"rps": np.array(RPS, float), "biased": np.array(BIASED_RPS, float)}
KUHN: dict[str, Any] = {
    "num_envs": 64, "num_steps": 16, "minibatch_size": 512, "num_epochs": 4, "hidden": (64, 64), "gamma": 1.0,
    "games_per_match": 16, "turn_updates": 4, "learning_rate": 3e-3, "entropy_coef": 0.01,
    "snapshot_steps": 10_000, "steps": 320_000, "evaluation_games": 2000,
}  # fmt: skip
LEDUC: dict[str, Any] = {
    "num_envs": 128, "num_steps": 32, "minibatch_size": 1024, "num_epochs": 4, "hidden": (64, 64), "gamma": 1.0,
    "games_per_match": 16, "turn_updates": 4, "learning_rate": 2e-3, "entropy_coef": 0.02, "meta_solver": "uniform",
    "snapshot_steps": 100_000, "steps": 3_200_000,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """`bar`: what the mixture's exploitability, or NashConv, must be below. `beside`: plain self-play is run, too."""

    name: str
    env: str
    settings: dict[str, Any]
    bar: float
    beside: bool = False
    num_seeds: int = 5


CASES = (
    Case(name="rps", env="matrix:rps", settings={**ONE_MOVE, "entropy_coef": 0.01}, bar=MIXTURE_BELOW, beside=True),
    Case(name="biased", env="matrix:biased_rps", settings={**ONE_MOVE, "entropy_coef": 0.01}, bar=MIXTURE_BELOW,
         beside=True),
    Case(name="disc", env="matrix:disc", bar=MIXTURE_BELOW, beside=True,
         settings={**ONE_MOVE, "entropy_coef": 0.0, "log_std": -0.5, "learning_rate": 3e-3, "steps": 81_920,
                   "snapshot_steps": 8192, "evaluation_games": 400}),
    Case(name="kuhn-exact", env="openspiel:kuhn_poker", settings={"oracle": "exact", "steps": 16}, bar=0.001,
         num_seeds=1),
    Case(name="kuhn", env="openspiel:kuhn_poker", settings=KUHN, bar=0.1, num_seeds=3),
    Case(name="leduc", env="openspiel:leduc_poker", settings=LEDUC, bar=1.0, num_seeds=3),
)  # fmt: skip


@dataclass
class Curve:
    """Of one run: after each snapshot, the steps so far and what is judged."""

    steps: list[int] = field(default_factory=list)
    current: list[float] = field(default_factory=list)  # the newest snapshot alone
    mixture: list[float] = field(default_factory=list)  # of all snapshots so far, by all scores that the run measured
    cpu_s: float = 0.0
    wall_s: float = 0.0
    date: str = ""
    evaluation_games: int = 0  # between snapshots, beside those that were learnt from

    @property
    def least_of_last_half(self) -> float:
        return min(self.current[len(self.current) // 2 :])


# ── judgement ─────────────────────────────────────────────────────────────────────────────────────────────────────


class OneMoveJudge:
    """Strategies are probabilities of actions, or mean points of the disc: payoffs are linear in both."""

    def __init__(self, case: Case) -> None:
        self._matrix = MATRICES.get(case.name)

    def strategy(self, policy: Any) -> Any:
        if self._matrix is not None:
            return probabilities(policy, np.array([[1.0, 0.0]], np.float32), np.ones((1, 3), np.bool_))[0]
        num = 20_000
        obs = np.tile(np.array([[1.0, 0.0]], np.float32), (num, 1))
        action, _, _ = policy.act(obs, None, np.ones(num, np.bool_), np.random.default_rng(0))
        return Disc.points(action).mean(0)

    def judge(self, strategies: list[Any], weights: list[float]) -> float:
        """What the best pure reply gets; of the disc, the length of the mean point."""
        average = np.average(strategies, axis=0, weights=weights)
        return float((self._matrix @ average).max() if self._matrix is not None else np.linalg.norm(average))


class PokerJudge:
    """NashConv: the last one by OpenSpiel, those on the way by the tables, which must agree with it."""

    def __init__(self, case: Case) -> None:
        self._env = case.env
        self._game = TabularGame(tree_of(case.env, {}))
        self.average: Any = None

    def strategy(self, policy: Any) -> Any:
        table = getattr(policy, "table", None)
        return table if table is not None else table_of(policy, self._game)

    def judge(self, strategies: list[Any], weights: list[float]) -> float:
        self.average = self._game.average(strategies, weights)
        return self._game.nash_conv(self.average)

    def referee(self) -> float:
        """Of the average that was judged last."""
        return nash_conv(self._env, {}, self.average)


def run(case: Case, rules: str, seed: int, steps: int) -> Curve:
    judge = OneMoveJudge(case) if case.env.startswith("matrix:") else PokerJudge(case)
    with tempfile.TemporaryDirectory() as project:
        wall, cpu = time.monotonic(), time.process_time()
        settings = {**case.settings, "steps": steps}
        found = league(case.env, rules=rules, seed=seed, bots=(), threads=1, project=project, **settings)
        took = {"cpu_s": time.process_time() - cpu, "wall_s": time.monotonic() - wall}
        curve = Curve(**took, date=str(datetime.date.today()))
        config = configs.load(found.trial_dir)
        with (
            open_league(found.trial_dir) as service,
            contextlib.closing(open_pool(config, found.trial_dir)) as pool,
        ):
            seats = make_seats(config, pool)
            players = [player_of(each) for each in service.players()]
            snapshots: list[Player] = [each for each in players if each.is_fixed]
            strategies = {each.name: judge.strategy(seats.open(each)) for each in snapshots}
            meta, payoff = service.league.settings.meta, service.league.payoff
            pairs = [(one.name, other.name) for one, other in itertools.combinations(snapshots, 2)]
            curve.evaluation_games = round(float(payoff.games_of(pairs).sum())) if pairs else 0
            for number, snapshot in enumerate(snapshots, 1):
                mixture = meta.mixture(snapshots[:number], payoff)
                curve.steps.append(snapshot.step)
                curve.current.append(judge.judge([strategies[snapshot.name]], [1.0]))
                curve.mixture.append(judge.judge([strategies[name] for name in mixture], list(mixture.values())))
    if isinstance(judge, PokerJudge):
        official = judge.referee()
        assert abs(official - curve.mixture[-1]) < 1e-6, (official, curve.mixture[-1])
        curve.mixture[-1] = official
    return curve


def kept_run(case: Case, rules: str, seed: int, file: Path, *, more_steps: int = 0) -> Curve:
    """As it is in the file of results, or made and added there; of `more_steps` than the case has."""
    steps = case.settings["steps"] + more_steps
    settings = {**case.settings, "steps": steps}
    key = {"env": case.env, "rules": rules, "seed": seed, "settings": json.loads(json.dumps(settings))}
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry["key"] == key:
                return Curve(**entry["curve"])
    curve = run(case, rules, seed, steps)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"key": key, "curve": vars(curve)}) + "\n")
    return curve


# ── the whole ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Found:
    case: Case
    league: dict[int, Curve] = field(default_factory=dict)  # by seed
    plain: dict[int, Curve] = field(default_factory=dict)

    @property
    def worst(self) -> float:
        return max(curve.mixture[-1] for curve in self.league.values())

    @property
    def least(self) -> float | None:
        return min((curve.least_of_last_half for curve in self.plain.values()), default=None)

    @property
    def is_met(self) -> bool:
        return self.worst < self.case.bar and (self.least is None or self.least > CYCLES_ABOVE)

    def line(self) -> str:
        mixtures = sorted(curve.mixture[-1] for curve in self.league.values())
        plain = "–" if self.least is None else f"{self.least:.2f}"
        cpu = median(curve.cpu_s for curve in self.league.values())
        steps = next(iter(self.league.values())).steps[-1]
        plain_steps = "–" if not self.plain else f"{next(iter(self.plain.values())).steps[-1]:,}"
        return (
            f"| {self.case.name} | {steps:,} | {plain_steps} | {len(mixtures)} | {plain} | {median(mixtures):.2g} | "
            f"{mixtures[-1]:.2g} | < {self.case.bar:g} | {cpu:.0f} s | {'yes' if self.is_met else '**no**'} |"
        )


HEAD = (
    "| game | steps learnt from | self-play: steps | seeds | self-play: least of 2nd half | league: median "
    "| league: worst | bar | CPU | met |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", default=names, choices=names, metavar="GAME", help=", ".join(names))
    parser.add_argument("--seeds", default="", help="as 1-5 or 1,3; default: five, of the poker games three")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="write league_*.svg there")
    parser.add_argument("--report", action="store_true", help=f"write the table to {REPORT.relative_to(ROOT)}")
    parser.add_argument("--out", type=Path, default=OUT, help="default: trials/equilibria/results.jsonl")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    results = []
    print(HEAD)
    for case in (case for case in CASES if case.name in args.only):
        found = Found(case)
        for seed in _seeds(args.seeds) if args.seeds and case.name != "kuhn-exact" else range(1, case.num_seeds + 1):
            found.league[seed] = kept_run(case, "psro", seed, args.out)
            if case.beside:
                games = found.league[seed].evaluation_games  # of one step each
                found.plain[seed] = kept_run(case, "self_play", seed, args.out, more_steps=games)
        print(found.line(), flush=True)
        results.append(found)
    if args.plot:
        plot(results, args.plot)
    if args.report:
        report(results)
    if args.json:
        print(json.dumps(summary(results)))
    return 0 if all(found.is_met for found in results) else 1


def _seeds(text: str) -> list[int]:
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(seed) for seed in text.split(",")]


def _versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in ("numpy", "torch", "open_spiel", "scipy")}
    return {"python": platform.python_version(), **found}


def _dates(results: list[Found]) -> list[str]:
    return [curve.date for found in results for curve in found.league.values()]


def summary(results: list[Found]) -> dict[str, Any]:
    return {
        "ratios": {f"{found.case.name}_bar_over_worst": found.case.bar / max(found.worst, 1e-9) for found in results},
        "medians": {found.case.name: median(curve.mixture[-1] for curve in found.league.values()) for found in results},
        "runs": {
            found.case.name: {
                "league": {seed: vars(curve) for seed, curve in found.league.items()},
                "self_play": {seed: vars(curve) for seed, curve in found.plain.items()},
            }
            for found in results
        },
        "met": {found.case.name: found.is_met for found in results},
        "versions": _versions(),
    }


def report(results: list[Found]) -> None:
    """The table, between two marks of the page; what else is there stays."""
    versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
    command = shlex.join(["python", "benchmarks/equilibria.py", *sys.argv[1:]])
    body = "\n".join([BEGIN, "", f"`{command}`, {max(_dates(results))}, {os.cpu_count()} CPUs; {versions}.", "", HEAD,
                      *(found.line() for found in results), "", END])  # fmt: skip
    text = REPORT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    REPORT.write_text(before + body + after, encoding="utf-8")


def plot(results: list[Found], folder: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    for file, chosen in (
        ("league_cycles.svg", [found for found in results if found.plain]),
        ("league_poker.svg", [found for found in results if not found.plain and len(found.league) > 1]),
    ):
        if not chosen:
            continue
        size = (4.2 * len(chosen), 3.4)
        chart, grid = pyplot.subplots(
            1, len(chosen), squeeze=False, figsize=size, layout="constrained", facecolor="white"
        )
        panels = grid[0]
        for panel, found in zip(panels, chosen, strict=True):
            _draw(panel, found)
        panels[0].set_ylabel("exploitability" if chosen[0].plain else "NashConv")
        panels[0].legend(frameon=False, fontsize=8)
        chart.savefig(folder / file, metadata={"Date": None})
        print(f"wrote {folder / file}")


def _draw(panel: Any, found: Found) -> None:
    for curves, values, colour, name in (
        (found.plain, "current", "#d1603d", "plain self-play, its player"),
        (found.league, "mixture", "#2a6fb0", "league, its mixture"),
    ):
        for number, curve in enumerate(curves.values()):
            label = name if number == 0 else None
            panel.plot(curve.steps, getattr(curve, values), color=colour, alpha=0.7, lw=1.2, label=label)
    panel.axhline(found.case.bar, color="#333333", lw=0.8, ls=":")
    if found.plain:
        panel.axhline(CYCLES_ABOVE, color="#333333", lw=0.8, ls="--")
    panel.set_title(found.case.name, fontsize=10)
    panel.set_xlabel("steps", fontsize=9)
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_ylim(bottom=0.0)


if __name__ == "__main__":
    sys.exit(main())
