"""Two states of Ludus against each other: is the new one as fast as the old one, and does it learn the same weights?

    .venv/bin/python benchmarks/compare.py HEAD~20 .                  a table for people
    .venv/bin/python benchmarks/compare.py OLD NEW --json             then one JSON object on the last line (DESIGN §9)
    .venv/bin/python benchmarks/compare.py HEAD~1 . --only weights    one minute: only the hashes

A state is a folder with a checkout, or a revision of this repository. Both run with the interpreter and the libraries
of this script, in turns, each round beginning with the other one; medians are compared. Exits with 0 if every ratio
new ÷ old is at least 0.97 and all hashes are equal.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from field import Entry, Field, Progress, Row
from gateway_contestants.heat import Served, run_heat
from harness import ROOT, BenchmarkError, Child, Stage, conclude
from loadgen.generator import LoadGenerator
from train_contestants.run import Run

BAR = 0.97
GIVE_UP_S = 300.0
START_S = 180.0
OBSERVATION_BYTES = 4 * 84 * 84
RATE, FIRST_UPDATE = "train_steps_per_second", "seconds_to_first_update"


class Task(NamedTuple):
    """A `ludus` command line, and the field of its result that is compared; of seconds, fewer are better."""

    command: str
    steps: int
    field: str = RATE


TRAINING = {
    "cartpole_sync": Task(
        "train ppo CartPole-v1 --num-envs 64 --num-steps 32 --num-epochs 4 --minibatch-size 512 --threads 1"
        " --eval-episodes 0",
        400_000,
    ),
    "cartpole_async": Task(
        "train appo CartPole-v1 --flow async --simulators 1 --num-envs 64 --num-steps 32 --num-epochs 1"
        " --minibatch-size 1024 --eval-episodes 0",
        600_000,
    ),
    "pong_async": Task(
        "train appo ALE/Pong-v5 --flow async --encoder nature --num-envs 16 --num-steps 32 --num-epochs 1"
        " --minibatch-size 512 --eval-episodes 0",
        20_000,
    ),
    "start": Task("train ppo CartPole-v1 --eval-episodes 0", 4096, FIRST_UPDATE),
}
SERVING = ("gateway_echo", "gateway_cnn")
RPC = "rpc_64B"
WEIGHTS = "weights"
GROUPS = [*TRAINING, *SERVING, RPC, WEIGHTS]
HASHED = {
    "ppo CartPole-v1": "train ppo CartPole-v1",
    "ppo Acrobot-v1": "train ppo Acrobot-v1",
    "ppo LunarLander-v3": "train ppo LunarLander-v3",
    "ppo Pendulum-v1": "train ppo Pendulum-v1",
    "a2c CartPole-v1": "train a2c CartPole-v1",
}
HASHED_STEPS = 6_000


class Side(NamedTuple):
    """`python` is a script that runs the interpreter on this checkout's `src`."""

    name: str  # old or new
    root: Path
    python: str


def make_side(name: str, state: str, folder: Path) -> Side:
    root = Path(state).resolve()
    if not (root / "src" / "ludus").is_dir():
        root = folder / f"checkout-{name}"
        root.mkdir()
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", state], capture_output=True, check=False)
        if archive.returncode:
            raise BenchmarkError(f"{state!r} is neither a checkout nor a revision: {archive.stderr.decode().strip()}")
        subprocess.run(["tar", "-x", "-C", str(root)], input=archive.stdout, check=True)
    script = folder / f"python-{name}"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{root / "src"}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return Side(name, root, str(script))


class Comparison:
    """Both sides, and the metrics of every round, by group and side."""

    def __init__(self, sides: list[Side], *, rounds: int, stage: Stage, progress: Progress) -> None:
        self.metrics: dict[str, dict[str, list[float]]] = {}
        self.hashes: dict[str, dict[str, str]] = {}
        self._sides = sides
        self._rounds = rounds
        self._stage = stage
        self._progress = progress
        self._num_runs = 0

    def run(self, group: str) -> None:
        if group in TRAINING:
            self._train(group, TRAINING[group])
        elif group in SERVING:
            self._serve(group)
        elif group == RPC:
            self._call()
        else:
            self._hash()

    def ratios(self) -> dict[str, float]:
        """New ÷ old, for seconds old ÷ new: higher is better."""
        found = {}
        for group, by_side in self.metrics.items():
            quotient = median(by_side["new"]) / median(by_side["old"])
            is_seconds = group in TRAINING and TRAINING[group].field != RATE
            found[group] = round(1 / quotient if is_seconds else quotient, 3)
        return found

    def _in_turns(self, each: Callable[[Side], None]) -> None:
        for turn in range(self._rounds):
            for side in self._sides if turn % 2 == 0 else self._sides[::-1]:
                each(side)

    # -- groups --

    def _train(self, group: str, task: Task) -> None:
        def once(side: Side) -> None:
            result = self._ludus(side, task.command, task.steps, seed=1)
            self._add(group, side, float(result.get(task.field) or result["steps_per_second"]))

        self._in_turns(once)

    def _hash(self) -> None:
        for name, command in HASHED.items():
            for side in self._sides:
                result = self._ludus(side, f"{command} --eval-episodes 0", HASHED_STEPS, seed=1)
                self.hashes.setdefault(name, {})[side.name] = result["weights_hash"]
            self._progress.step(f"weights of {name}: {self.hashes[name]}")

    def _serve(self, group: str) -> None:
        generator = LoadGenerator.build(self._stage.folder)
        what, row = (["echo"], "echo") if group == "gateway_echo" else (["cnn", "2"], "cnn")
        size = 1024 if row == "echo" else OBSERVATION_BYTES
        contestants = []
        for side in self._sides:
            script = side.root / "benchmarks" / "gateway_contestants" / "with_ludus.py"
            folder = self._stage.folder / side.name
            folder.mkdir(exist_ok=True)
            child = Child(f"{group} {side.name}", [side.python, str(script), *what], folder=folder, grace_s=10.0)
            self._stage.children.append(child)
            child.hello = child.answer(timeout_s=START_S)
            contestants.append(Served(row, side.name, "", child, generator=generator, body_bytes=size))
        run_heat(group, contestants, rounds=self._rounds, seconds=2.5, progress=self._progress)
        for contestant, side in zip(contestants, self._sides, strict=True):
            if contestant.failure:
                raise BenchmarkError(f"{group}, {side.name}: {contestant.failure}")
            for one in contestant.slices:
                self._add(group, side, one["rate"])
            self._end(contestant.child)

    def _call(self) -> None:
        row = Row("64B", 64, 1)
        race = Field(self._stage)
        contestants = race.enter(
            [
                Entry(side.name, "", [row], side.python, str(side.root / "benchmarks/contestants/over_ludus.py"),
                      f"rpc {side.name}", server=["unix"], options={"transport": "unix"})
                for side in self._sides
            ]
        )  # fmt: skip
        for contestant in contestants:
            contestant.slice(row, 0.3)
        by_name = {contestant.name: contestant for contestant in contestants}
        self._in_turns(lambda side: self._add(RPC, side, by_name[side.name].slice(row, 1.0)))
        for contestant in contestants:
            self._end(contestant.client)
            if contestant.server is not None:
                self._end(contestant.server)

    # -- parts --

    def _ludus(self, side: Side, command: str, steps: int, *, seed: int) -> dict[str, Any]:
        self._num_runs += 1
        words = [side.python, "-m", "ludus", *command.split(), "--steps", str(steps), "--seed", str(seed), "--json"]
        words += ["--project", str(self._stage.folder / f"project{self._num_runs}")]
        run = Run(f"{self._num_runs} {side.name}", words, folder=self._stage.folder, threads=None)
        self._stage.children.append(run)
        try:
            return run.result(timeout_s=GIVE_UP_S)
        finally:
            self._end(run)

    def _end(self, child: Child) -> None:
        child.ask_to_stop()
        child.stop()
        self._stage.children.remove(child)

    def _add(self, group: str, side: Side, metric: float) -> None:
        self.metrics.setdefault(group, {}).setdefault(side.name, []).append(metric)
        self._progress.step(f"{group} {side.name}: {metric:,.2f}")


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    with Stage() as stage:
        sides = [make_side(name, state, stage.folder) for name, state in (("old", args.old), ("new", args.new))]
        comparison = Comparison(sides, rounds=args.rounds, stage=stage, progress=progress)
        for group in args.only:
            comparison.run(group)
    return {
        "ratios": comparison.ratios(),
        "medians": {g: {s: round(median(runs), 2) for s, runs in by.items()} for g, by in comparison.metrics.items()},
        "runs": comparison.metrics,
        "hashes": comparison.hashes,
        "versions": {
            "old": args.old,
            "new": args.new,
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
    }


def print_result(result: dict[str, Any]) -> None:
    if result["ratios"]:
        print(f"\n{'new ÷ old (higher is better)':34}{'ratio':>8}{'old':>14}{'new':>14}")
    for group, ratio in result["ratios"].items():
        below = f"  BELOW {BAR}" if ratio < BAR else ""
        medians = result["medians"][group]
        print(f"  {group:32}{ratio:8.3f}{medians['old']:14,.2f}{medians['new']:14,.2f}{below}")
    for name, by_side in result["hashes"].items():
        print(f"  weights of {name}: {'equal' if by_side['old'] == by_side['new'] else 'DIFFERENT'} ({by_side['new']})")


def is_good(result: dict[str, Any]) -> bool:
    are_equal = all(by_side["old"] == by_side["new"] for by_side in result["hashes"].values())
    return are_equal and all(ratio >= BAR for ratio in result["ratios"].values())


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", help="a folder with a checkout, or a revision")
    parser.add_argument("new", help="likewise")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line of stdout")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (default: %(default)s)")
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, default=GROUPS, metavar="GROUP", help=f"some of {', '.join(GROUPS)}"
    )
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    outcome: dict[str, Any] = {}

    def measure() -> dict[str, Any]:
        outcome.update(run(args, Progress("compare")))
        return outcome

    code = conclude("compare", measure, print_result, as_json=args.json)
    return code or (0 if is_good(outcome) else 1)


if __name__ == "__main__":
    sys.exit(main())
