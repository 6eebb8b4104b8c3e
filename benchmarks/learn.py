"""What Ludus learns: every algorithm to the return that is expected of it, on five seeds; and by its defaults, on three
seeds, environments that nothing was tuned for (`untuned_envs.py`).

    python benchmarks/learn.py                              # all cases: hours on two cores
    python benchmarks/learn.py --part untuned               # only those that nothing was tuned for
    python benchmarks/learn.py --part replay                # only those that learn from replay
    python benchmarks/learn.py --part offline               # only those that learn from datasets
    python benchmarks/learn.py --part games                 # only those that are learnt from a game that calls
    python benchmarks/learn.py --only ppo-cartpole --seeds 1,2
    python benchmarks/learn.py --json                       # one JSON object on the last line

Each run is a process, `ludus train … --json`, judged by the evaluation at its end: greedy play over 100 episodes, or
games against random play. It becomes a line in the file of results as soon as it is over; started again, only runs that
are not in there are made. With all of a part there, its table goes to docs/learning_results.md. Exits with 0 if every
seed that was run met its bar.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "learning_results.md"
EPISODES = 100
UNTUNED = "benchmarks/untuned_envs.py"
HIDDEN_VELOCITY = "examples/hidden_velocity.py:make"
FOR_HIDDEN_VELOCITY = (  # a function of one's own has no preset
    "--num-steps 128 --minibatch-size 512 --num-epochs 10 --gamma 0.98 --lam 0.9 --learning-rate 1e-3 --anneal"
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained, and what its `measure` must be: at least `bar`, or below it if `is_limit`."""

    name: str
    algorithm: str
    env: str
    steps: int
    bar: float
    is_limit: bool = False
    is_alone: bool = False  # it needs all cores, so nothing else runs beside it
    settings: str = ""  # further options of `ludus train`
    episodes: int = EPISODES  # more where single episodes say little
    measure: str = "eval_return_mean"  # a field of the result
    game: str = ""  # a program that plays at the same time and calls: Python, or C++ that is compiled first
    data: str = ""  # a dataset of `offline_data.py`, which is made first

    def command(self, seed: int) -> list[str]:
        """What a person would type after `ludus`; where the trial goes is added."""
        words = f"train {self.algorithm} {self.env} --steps {self.steps} --seed {seed} {self.settings}"
        return [*shlex.split(words), "--threads", "1", "--eval-episodes", str(self.episodes)]

    def is_met(self, value: float) -> bool:
        return value < self.bar if self.is_limit else value >= self.bar

    @property
    def wanted(self) -> str:
        return f"{'<' if self.is_limit else '≥'} {self.bar:g}"


CASES = (
    Case(name="ppo-cartpole", algorithm="ppo", env="CartPole-v1", steps=100_000, bar=475),
    Case(name="a2c-cartpole", algorithm="a2c", env="CartPole-v1", steps=500_000, bar=475),
    Case(name="impala-cartpole", algorithm="impala", env="CartPole-v1", steps=500_000, bar=475, is_alone=True),
    Case(name="appo-cartpole", algorithm="appo", env="CartPole-v1", steps=500_000, bar=475, is_alone=True),
    Case(name="ppo-hidden-velocity-lstm", algorithm="ppo", env=HIDDEN_VELOCITY, steps=200_000, bar=475,
         settings=f"--recurrent lstm {FOR_HIDDEN_VELOCITY}"),
    Case(name="ppo-hidden-velocity", algorithm="ppo", env=HIDDEN_VELOCITY, steps=200_000, bar=300, is_limit=True,
         settings=FOR_HIDDEN_VELOCITY),
    Case(name="ppo-acrobot", algorithm="ppo", env="Acrobot-v1", steps=1_000_000, bar=-90),
    Case(name="ppo-lunarlander", algorithm="ppo", env="LunarLander-v3", steps=1_000_000, bar=200),
    Case(name="ppo-pendulum", algorithm="ppo", env="Pendulum-v1", steps=300_000, bar=-250),
)  # fmt: skip
# Budgets as published for these algorithms, or less.
REPLAY_CASES = (
    Case(name="dqn-cartpole", algorithm="dqn", env="CartPole-v1", steps=50_000, bar=475),
    Case(name="dqn-acrobot", algorithm="dqn", env="Acrobot-v1", steps=100_000, bar=-90),
    Case(name="dqn-lunarlander", algorithm="dqn", env="LunarLander-v3", steps=300_000, bar=200),
    Case(name="c51-cartpole", algorithm="dqn", env="CartPole-v1", steps=50_000, bar=475,
         settings="--distribution c51"),
    Case(name="qr-cartpole", algorithm="dqn", env="CartPole-v1", steps=50_000, bar=475, settings="--distribution qr"),
    Case(name="sac-pendulum", algorithm="sac", env="Pendulum-v1", steps=20_000, bar=-180),
    Case(name="td3-pendulum", algorithm="td3", env="Pendulum-v1", steps=20_000, bar=-180),
    Case(name="sac-mountaincar", algorithm="sac", env="MountainCarContinuous-v0", steps=50_000, bar=90),
    Case(name="sac-cartpole", algorithm="sac", env="CartPole-v1", steps=50_000, bar=475),
    Case(name="r2d2-hidden-velocity", algorithm="r2d2", env=HIDDEN_VELOCITY, steps=200_000, bar=450,
         settings="--learning-rate 1e-3"),
    Case(name="dqn-hidden-velocity", algorithm="dqn", env=HIDDEN_VELOCITY, steps=50_000, bar=100, is_limit=True),
)  # fmt: skip
CORRIDORS = "tests/experiment/datasets/corridor.py"
FOR_CORRIDORS = "--batch-size 64 --hidden 32"
# Steps are transitions that are drawn. Of the corridors, most of those who played went into the pit: -1.06.
OFFLINE_CASES = (
    Case(name="bc-cartpole-recorded", algorithm="bc", env="CartPole-v1", steps=200_000, bar=475, data="cartpole",
         settings="--dataset build/offline/cartpole"),
    *(
        Case(name=f"{algorithm}-{name.replace('_', '-')}", algorithm=algorithm, env=f"{CORRIDORS}:{env}", steps=64_000,
             bar=bar, is_limit=algorithm == "bc", data=name,
             settings=f"--dataset build/offline/{name},build/offline/{name}-bad {FOR_CORRIDORS}{more}")
        for name, env in (("corridor", "Corridor"), ("continuous_corridor", "ContinuousCorridor"))
        for algorithm, bar, more in (("bc", -0.5, ""), ("iql", 0.9, " --tau 0.02"))
    ),
)  # fmt: skip
SPEC = "--spec examples/cartpole_game.json"
PYTHON_GAME, CPP_GAME = "examples/cartpole_game.py", "clients/cpp/cartpole.cpp"
# Only the steps are given: nothing knows that this is CartPole. Each needs a port, and a core for the game.
GAME_CASES = (
    Case(name="ppo-game", algorithm="ppo", env="game://127.0.0.1:8471", steps=200_000, bar=475, is_alone=True,
         settings=SPEC, game=PYTHON_GAME),
    Case(name="ppo-game-cpp", algorithm="ppo", env="game://127.0.0.1:8472", steps=200_000, bar=475, is_alone=True,
         settings=SPEC, game=CPP_GAME),
    Case(name="appo-game", algorithm="appo", env="game://127.0.0.1:8473", steps=500_000, bar=475, is_alone=True,
         settings=SPEC, game=PYTHON_GAME),
    Case(name="a2c-game", algorithm="a2c", env="game://127.0.0.1:8474", steps=500_000, bar=475, is_alone=True,
         settings=f"{SPEC} --gamma 0.98 --learning-rate 1e-3 --anneal", game=PYTHON_GAME),
    Case(name="ppo-game-2-trainers", algorithm="ppo", env="game://127.0.0.1:8475", steps=200_000, bar=475,
         is_alone=True, settings=f"{SPEC} --trainers 2", game=PYTHON_GAME),
)  # fmt: skip
# Only `--steps` is given. A memory and several simulators belong to the question.
UNTUNED_CASES = (
    Case(name="byte-planes", algorithm="ppo", env=f"{UNTUNED}:byte_planes", steps=150_000, bar=0.7),
    Case(name="codes", algorithm="ppo", env=f"{UNTUNED}:codes", steps=150_000, bar=0.7),
    Case(name="cartpole-x1e6", algorithm="ppo", env=f"{UNTUNED}:scaled_cartpole", steps=200_000, bar=450e6,
         settings="--env-args '{\"scale\": 1e6}'"),
    Case(name="cartpole-x1e-3", algorithm="ppo", env=f"{UNTUNED}:scaled_cartpole", steps=200_000, bar=0.45,
         settings="--env-args '{\"scale\": 1e-3}'"),
    Case(name="box-0-1000", algorithm="ppo", env=f"{UNTUNED}:dial", steps=150_000, bar=-0.8),
    Case(name="frozenlake", algorithm="ppo", env="FrozenLake-v1", steps=300_000, bar=0.6, episodes=500),
    Case(name="taxi", algorithm="ppo", env="Taxi-v4", steps=1_000_000, bar=4),
    Case(name="blackjack", algorithm="ppo", env="Blackjack-v1", steps=200_000, bar=-0.12, episodes=3_000),
    Case(name="dict", algorithm="ppo", env=f"{UNTUNED}:corners", steps=150_000, bar=0.55),
    Case(name="multidiscrete", algorithm="ppo", env=f"{UNTUNED}:locks", steps=150_000, bar=9),
    Case(name="masks", algorithm="ppo", env=f"{UNTUNED}:cards", steps=200_000, bar=4.3),
    Case(name="t-maze-gru", algorithm="ppo", env=f"{UNTUNED}:t_maze", steps=150_000, bar=0.8,
         settings="--recurrent gru"),
    Case(name="one-step", algorithm="ppo", env=f"{UNTUNED}:one_step", steps=100_000, bar=0.9),
    Case(name="endless", algorithm="ppo", env=f"{UNTUNED}:endless", steps=150_000, bar=800),
    Case(name="pendulum-own", algorithm="ppo", env=f"{UNTUNED}:pendulum", steps=300_000, bar=-400),
    Case(name="pendulum-appo", algorithm="appo", env="Pendulum-v1", steps=300_000, bar=-400, is_alone=True,
         settings="--simulators 2"),
    Case(name="pendulum-impala", algorithm="impala", env="Pendulum-v1", steps=1_500_000, bar=-400, is_alone=True,
         settings="--simulators 2"),
    Case(name="acrobot-appo", algorithm="appo", env="Acrobot-v1", steps=500_000, bar=-100, is_alone=True,
         settings="--simulators 2"),
    Case(name="acrobot-impala", algorithm="impala", env="Acrobot-v1", steps=500_000, bar=-100, is_alone=True,
         settings="--simulators 2"),
    Case(name="mountaincar-continuous", algorithm="ppo", env="MountainCarContinuous-v0", steps=300_000, bar=85),
    Case(name="small-breakout", algorithm="ppo", env=f"{UNTUNED}:small_breakout", steps=300_000, bar=10),
    Case(name="tic-tac-toe", algorithm="ppo", env="pettingzoo:tictactoe_v3", steps=400_000, bar=0.9,
         measure="eval_vs_random"),
    Case(name="connect-four", algorithm="ppo", env="pettingzoo:connect_four_v3", steps=500_000, bar=0.9,
         measure="eval_vs_random"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Part:
    """Cases that share their seeds and a section of the page, which begins with `heading`."""

    cases: tuple[Case, ...]
    seeds: tuple[int, ...]
    heading: str
    intro: str
    note: str


PARTS = {
    "tuned": Part(
        cases=CASES,
        seeds=(1, 2, 3, 4, 5),
        heading="# What is learnt",
        intro=f"""\
Returns of greedy play, means over {EPISODES} episodes, one column for each seed. The settings are those that `ludus
train` has for these environments and those in the commands below, the same for every seed. `make learn` makes this page
again. Seconds are the mean over the runs of a case; two are run at a time, unless they need both cores.""",
        note="""\
`ppo-hidden-velocity` is there to fail: without state the environment of `examples/hidden_velocity.py` cannot be
played well, so what the one with an LSTM reaches comes from its state.""",
    ),
    "replay": Part(
        cases=REPLAY_CASES,
        seeds=(1, 2, 3, 4, 5),
        heading="## From replay",
        intro="""\
Algorithms that learn from replay, by the settings that `ludus train` has for these environments and those in the
commands below, the same for every seed.""",
        note="""\
`dqn-hidden-velocity` is there to fail: what `r2d2` reaches on the same environment comes from its state.""",
    ),
    "offline": Part(
        cases=OFFLINE_CASES,
        seeds=(1, 2, 3, 4, 5),
        heading="## From datasets",
        intro="""\
Nothing is played but to evaluate. `python benchmarks/offline_data.py` makes the datasets: 20 episodes of a controller
that were recorded through the gateway, and a corridor with a pit and a prize, played by some who mostly missed it.""",
        note="""\
`bc-corridor` and `bc-continuous-corridor` are there to fail: most of those who are imitated went into the pit.""",
    ),
    "untuned": Part(
        cases=UNTUNED_CASES,
        seeds=(1, 2, 3),
        heading="## Not tuned for",
        intro="""\
Environments that no setting was tuned for, by the defaults: only `--steps` is given. Each has a property that defaults
tend to get wrong; `benchmarks/untuned_envs.py` says what random and perfect play return.""",
        note="""\
Of `tic-tac-toe` and `connect-four`, the measure is the share of games won against random play, draws counted half and
either side played equally often; of all others, the return of greedy play.""",
    ),
    "games": Part(
        cases=GAME_CASES,
        seeds=(1, 2, 3),
        heading="## From a game",
        intro="""\
CartPole as a process that only speaks the protocol, 16 poles at once, by the defaults and what is shown: nothing knows
which game it is. The evaluation is played by the same game, in greedy sessions. The game is
`python examples/cartpole_game.py --port PORT`, or `clients/cpp/cartpole.cpp`.""",
        note="Runs are not deterministic: games play while the trainer learns.",
    ),
}


@dataclass(frozen=True)
class Run:
    case: Case
    seed: int

    @property
    def words(self) -> list[str]:
        return self.case.command(self.seed)


class Results:
    """The lines of earlier runs, found by the command that was run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                report = json.loads(line)
                self._found[report["command"]] = report
            except (ValueError, KeyError, TypeError):
                continue  # torn by a kill: that run is made again

    def find(self, run: Run) -> dict[str, Any] | None:
        return self._found.get(shlex.join(run.words))

    def add(self, run: Run, result: dict[str, Any]) -> None:
        entry = {"case": run.case.name, "seed": run.seed, "command": shlex.join(run.words), "result": result}
        entry["date"] = datetime.date.today().isoformat()
        entry["versions"] = versions()
        self._found[entry["command"]] = entry
        self._path.parent.mkdir(parents=True, exist_ok=True)
        is_torn = self._path.exists() and not self._path.read_bytes().endswith(b"\n")
        with self._path.open("a") as file:
            file.write("\n" * is_torn + json.dumps(entry) + "\n")

    def returns(self, case: Case, seeds: Sequence[int]) -> list[float | None]:
        found = [self.find(Run(case, seed)) for seed in seeds]
        return [None if entry is None else measured(case, entry["result"]) for entry in found]

    def seconds(self, case: Case, seeds: Sequence[int]) -> float | None:
        found = [entry["result"]["seconds"] for seed in seeds if (entry := self.find(Run(case, seed)))]
        return mean(found) if found else None

    def entries(self, cases: Sequence[Case], seeds: Sequence[int]) -> list[dict[str, Any]]:
        return [result for case in cases for seed in seeds if (result := self.find(Run(case, seed)))]


def measured(case: Case, result: dict[str, Any]) -> float:
    """What a run is judged by. An evaluation that failed, or a number that is not finite, meets no bar."""
    value = result.get(case.measure)
    return float("nan") if value is None else float(value)


# ---- running


def train(run: Run, project: Path) -> dict[str, Any]:
    """The object that `ludus train --json` ends with. Raises `RuntimeError` with what it said, if it failed."""
    trial = f"{run.case.name}-{run.seed}"
    shutil.rmtree(project / trial, ignore_errors=True)  # of a run that was cut off
    words = [*run.words, "--json", "--project", str(project), "--trial", trial]
    with playing(run.case, project):
        done = subprocess.run(
            [sys.executable, "-m", "ludus.cli.main", *words],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


@contextlib.contextmanager
def playing(case: Case, project: Path) -> Iterator[None]:
    """The game of a case, if it has one, until the end of the block."""
    if not case.game:
        yield
        return
    port, source = case.env.rpartition(":")[2], ROOT / case.game
    if source.suffix == ".cpp":
        program = project / source.stem
        project.mkdir(parents=True, exist_ok=True)
        subprocess.run(["g++", "-std=c++17", "-O2", "-pthread", str(source), "-o", str(program)], check=True)
        command = [str(program), "127.0.0.1", port, "16"]
    else:
        command = [sys.executable, str(source), "--port", port]
    game = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        game.terminate()
        game.wait()


def run_all(runs: Sequence[Run], results: Results, *, project: Path, jobs: int) -> int:
    """Make the runs, `jobs` at a time; those that need all cores come last, one by one. Returns how many failed."""
    num_failed = num_done = 0
    if needed := sorted({run.case.data for run in runs if run.case.data}):
        subprocess.run([sys.executable, str(ROOT / "benchmarks" / "offline_data.py"), *needed], cwd=ROOT, check=True)
    for at_once, some in (
        (jobs, [run for run in runs if not run.case.is_alone]),
        (1, [run for run in runs if run.case.is_alone]),
    ):
        for run, outcome in finished(some, project=project, jobs=at_once):
            num_done += 1
            name = f"{num_done} of {len(runs)}   {run.case.name}, seed {run.seed}"
            if isinstance(outcome, Exception):
                num_failed += 1
                print(f"{name}: failed. {outcome}", file=sys.stderr, flush=True)
                continue
            results.add(run, outcome)
            metric = measured(run.case, outcome)
            verdict = "met" if run.case.is_met(metric) else "NOT met"
            print(
                f"{name}: {spelled(metric)}, {run.case.wanted} {verdict}, {outcome['seconds']:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    return num_failed


def finished(runs: Sequence[Run], *, project: Path, jobs: int) -> Iterator[tuple[Run, dict[str, Any] | Exception]]:
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        asked = {pool.submit(train, run, project): run for run in runs}
        try:
            for future in concurrent.futures.as_completed(asked):
                error = future.exception()
                yield asked[future], error if isinstance(error, Exception) else future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)  # interrupted: those that run have been, too


# ---- telling


def spelled(value: float) -> str:
    """With a tenth, or three digits of a small or large one."""
    return f"{value:.1f}" if 9.95 <= abs(value) < 1e5 or value == 0.0 else f"{value:.3g}"


def versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in ("ludus", "torch", "numpy", "gymnasium")}
    return {"python": platform.python_version(), **found}


def table(cases: Sequence[Case], seeds: Sequence[int], results: Results) -> list[list[str]]:
    rows = [["case", "steps", *(f"seed {seed}" for seed in seeds), "mean", "bar", "met", "seconds"]]
    for case in cases:
        returns = results.returns(case, seeds)
        known = [value for value in returns if value is not None]
        seconds = results.seconds(case, seeds)
        rows.append(
            [
                case.name,
                f"{case.steps:,}",
                *("–" if value is None else spelled(value) for value in returns),
                spelled(mean(known)) if known else "–",
                case.wanted,
                f"{sum(map(case.is_met, known))} of {len(seeds)}",
                "–" if seconds is None else f"{seconds:.0f}",
            ]
        )
    return rows


def as_text(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|---|" + "--:|" * (len(rows[0]) - 1), *body])


def section(part: Part, cases: Sequence[Case], seeds: Sequence[int], results: Results) -> str:
    result = results.entries(cases, seeds)
    dates = sorted({one["date"] for one in result})
    used = sorted({", ".join(f"{name} {version}" for name, version in one["versions"].items()) for one in result})
    commands = "\n".join(f"ludus {shlex.join(case.command(seeds[0]))}" for case in cases)
    return f"""{part.heading}

{part.intro}

{as_markdown(table(cases, seeds, results))}

{part.note}

The commands; `--seed` is {", ".join(map(str, seeds))}:

```
{commands}
```

{" to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "never"}; {"; ".join(used)}; {os.cpu_count()} cores, \
{platform.machine()}.
"""


def with_section(page: str, name: str, text: str) -> str:
    """The page with the section of one part replaced, or added in the order of the parts; the others stay."""
    headings = {part.heading: each for each, part in PARTS.items()}
    lines: dict[str, list[str]] = {each: [] for each in PARTS}
    of = next(iter(PARTS))
    for line in page.splitlines():
        of = headings.get(line, of)
        lines[of].append(line)
    found = {each: "\n".join(own).strip() for each, own in lines.items()}
    found[name] = text.strip()
    return "\n\n".join(text for text in found.values() if text) + "\n"


def as_json(cases: Sequence[Case], seeds: Sequence[int], results: Results) -> list[dict[str, Any]]:
    rows = []
    for case in cases:
        returns = results.returns(case, seeds)
        met = [value is not None and case.is_met(value) for value in returns]
        rows.append(
            {
                "case": case.name,
                "algorithm": case.algorithm,
                "env": case.env,
                "steps": case.steps,
                "bar": case.bar,
                "measure": case.measure,
                "is_limit": case.is_limit,
                "returns": {
                    str(seed): value if value is None or isfinite(value) else None
                    for seed, value in zip(seeds, returns, strict=True)
                },
                "num_met": sum(met),
                "num_seeds": len(seeds),
                "seconds": results.seconds(case, seeds),
            }
        )
    return rows


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = {case.name: case for part in PARTS.values() for case in part.cases}
    parser.add_argument("--part", choices=(*PARTS, "all"), default="all", help="which cases (default: all)")
    parser.add_argument("--only", metavar="CASE,…", help="these cases: " + ", ".join(known))
    parser.add_argument("--seeds", metavar="N,…", help="default: 1,2,3,4,5; 1,2,3 of those that are not tuned for")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="runs at a time (default: 2)")
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        default=ROOT / "trials" / "learning" / "results.jsonl",
        help="where results are kept (default: trials/learning/results.jsonl)",
    )
    parser.add_argument(
        "--report",
        metavar="FILE.md",
        type=Path,
        help="write the page there, with whatever is known (default: docs/, once all runs of a part are)",
    )
    parser.add_argument("--json", action="store_true", help="end with one line of JSON on standard output")
    args = parser.parse_args(words)
    names = args.only.split(",") if args.only else list(known)
    if missing := [name for name in names if name not in known]:
        parser.error(f"there is no case {missing[0]!r}; there are {', '.join(known)}")
    args.asked = [  # (part, its cases that were asked for, seeds)
        (name, cases, [int(seed) for seed in args.seeds.split(",")] if args.seeds else part.seeds)
        for name, part in PARTS.items()
        if args.part in (name, "all") and (cases := [case for case in part.cases if case.name in names])
    ]
    if not args.asked:
        parser.error(f"--part {args.part} has none of the cases {args.only}")
    return args


def main(words: Sequence[str] | None = None) -> int:
    args = parse(words)
    results = Results(args.out)
    wanted = [Run(case, seed) for _, cases, seeds in args.asked for case in cases for seed in seeds]
    missing = [run for run in wanted if results.find(run) is None]
    if len(missing) < len(wanted):
        print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in {args.out}", file=sys.stderr)
    try:
        num_failed = run_all(missing, results, project=args.out.absolute().parent / "trials", jobs=max(1, args.jobs))
    except KeyboardInterrupt:
        print(f"interrupted; what is done is in {args.out}, and the same command goes on", file=sys.stderr)
        return 130
    for _, cases, seeds in args.asked:
        print(as_text(table(cases, seeds, results)))
    write_page(args, results)
    result = {"cases": [row for _, cases, seeds in args.asked for row in as_json(cases, seeds, results)]}
    if args.json:
        print(json.dumps({**result, "versions": versions()}))
    is_all_met = all(row["num_met"] == row["num_seeds"] for row in result["cases"])
    return 0 if is_all_met and not num_failed else 1


def write_page(args: argparse.Namespace, results: Results) -> None:
    """To the file that was asked for, whatever is known; else to docs/, each part once all its runs are known."""
    if args.report is not None:
        texts = [section(PARTS[name], cases, seeds, results) for name, cases, seeds in args.asked]
        args.report.write_text("\n".join(texts), encoding="utf-8")
        return
    for name, _, _ in args.asked:
        part = PARTS[name]
        if len(results.entries(part.cases, part.seeds)) == len(part.cases) * len(part.seeds):
            page = REPORT.read_text(encoding="utf-8") if REPORT.exists() else ""
            text = section(part, part.cases, part.seeds, results)
            REPORT.write_text(with_section(page, name, text), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
