"""Ludus's training against CleanRL's manner, Stable-Baselines3, RLlib, Sample Factory and the machine's own limit.

    python benchmarks/train.py            a table for people
    python benchmarks/train.py --json     the same, then one JSON object on the last line (DESIGN §9)
    python benchmarks/train.py --only pong18 --rounds 1      Pong until it is learnt: an hour and a half
    python benchmarks/train.py --only pong18 --rounds 1 --variants APPO      of ours, only this one

Everyone runs in every round, one after the other, each as a process of its own; medians over the rounds are
compared. This script needs only the standard library: Ludus runs in .venv, its peers in .venv-peers-*. What each
group means is in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from field import Progress
from harness import ROOT, BenchmarkError, Stage, conclude, make_environments
from train_contestants.run import Late, Run

GIVE_UP_S = 120.0  # time475: nobody is waited for longer
GIVE_UP_PONG_S = 90 * 60.0
# What SB3's PPO needed to learn Pong, in environment steps (4 frames each) of its 8 environments together: the first
# 0.monitor.csv of ppo/PongNoFrameskip-v4_1 in github.com/DLR-RM/rl-trained-agents (March 2021, RL Zoo's settings),
# where the mean of five of its episodes first is 0 and 18. CleanRL has the same settings and publishes no such numbers.
PUBLISHED_STEPS = {"pong0": 1_518_464, "pong18": 2_002_476}


class Ours(NamedTuple):
    """A `ludus` command line; it ends with the number of steps, which is what sets the length of a run."""

    command: str
    steps: int
    quick_steps: int
    variant: str = ""


# ---- Our command lines. `--json --seed S --project DIR` are added to each. -------------------------------------------
OURS = {
    "cartpole": [
        *(
            Ours(
                "train ppo CartPole-v1 --num-envs 64 --num-steps 32 --num-epochs 4 --minibatch-size 512"
                f" --learning-rate 2.5e-4 --eval-episodes 0 --threads {n}",
                500_000,
                150_000,
                f"{n} threads",
            )
            for n in (1, 2)
        ),
    ],
    "async": [
        Ours(
            "train appo CartPole-v1 --flow async --simulators 1 --num-envs 64 --num-steps 32 --num-epochs 1"
            " --minibatch-size 1024 --eval-episodes 0",
            800_000,
            200_000,
        ),
    ],
    "time475": [Ours("train ppo CartPole-v1 --stop-at-return 475", 100_000, 100_000)],
    "pong": [
        Ours(
            "train appo ALE/Pong-v5 --flow async --encoder nature --num-envs 16 --num-steps 32 --num-epochs 1"
            " --minibatch-size 512 --eval-episodes 0",
            30_000,
            10_000,
        ),
    ],
    "pong18": [
        Ours(f"train {algorithm} ALE/Pong-v5 --stop-at-return 18", 3_000_000, 20_000, algorithm.upper())
        for algorithm in ("ppo", "appo")
    ],
    "start": [
        Ours(
            "train ppo CartPole-v1 --num-envs 8 --num-steps 256 --num-epochs 4 --minibatch-size 256 --eval-episodes 0",
            4096,
            4096,
            "same work",
        ),
        Ours("train ppo CartPole-v1 --eval-episodes 0", 4096, 4096, "as typed"),
    ],
}


class Peer(NamedTuple):
    """A contestant's script and its task; `--seed S` is added, and `--seconds S` where the task has a length.

    `threads` of OpenMP and BLAS in each of its processes; None: as the library decides for its kinds of process.
    """

    group: str
    name: str
    venv: str
    command: str
    seconds: float | None = None
    threads: int | None = 1
    variant: str = ""


CLEAN, SB3 = "single_file_ppo.py", "with_sb3.py"
CLEAN_PONG = "single_file_pong.py"
RLLIB, SAMPLE_FACTORY = "with_rllib.py", "with_sample_factory.py"
PEERS = [
    *(Peer("cartpole", "cleanrl", "sb3", f"{CLEAN} rate --threads {n}", 8, n, f"{n} threads") for n in (1, 2)),
    *(Peer("cartpole", "sb3", "sb3", f"{SB3} rate --threads {n}", 8, n, f"{n} threads") for n in (1, 2)),
    *(Peer("cartpole", "rllib", "rllib", f"{RLLIB} rate --runners {n}", 10, None, f"{n} runners") for n in (0, 2)),
    Peer("async", "sample_factory", "sf", f"{SAMPLE_FACTORY} rate", 20, None),
    Peer("time475", "cleanrl", "sb3", f"{CLEAN} to-475 --settings cleanrl", variant="its own settings"),
    Peer("time475", "cleanrl", "sb3", f"{CLEAN} to-475 --settings zoo", variant="RL Zoo's settings"),
    Peer("time475", "sb3", "sb3", f"{SB3} to-475", variant="RL Zoo's settings"),
    Peer("time475", "rllib", "rllib", f"{RLLIB} to-475", threads=None, variant="its example's settings"),
    Peer("time475", "sample_factory", "sf", f"{SAMPLE_FACTORY} to-475", threads=None, variant="its example's settings"),
    Peer("pong", "sample_factory", "sf", f"{SAMPLE_FACTORY} pong", 35, None),
    Peer("pong", "rllib", "rllib", f"{RLLIB} pong", 30, None),
    *(Peer("pong18", "cleanrl", "sb3", f"{CLEAN_PONG} --threads {n}", 45, n, f"{n} threads") for n in (1, 2)),
    *(Peer("pong18", "sb3", "sb3", f"{SB3} pong --threads {n}", 45, n, f"{n} threads") for n in (1, 2)),
    Peer("start", "sb3", "sb3", f"{SB3} start"),
    Peer("limit", "limit", "", "pong_limit.py", 0.7, 2),
]

TIMES = {"time475", "pong18", "pong0", "start"}  # groups in which the smaller metric wins
REPEATS = {"time475": 2, "start": 2}  # turns of a group in each round; these are short and vary more
GROUPS = ["cartpole", "async", "time475", "pong", "start", "limit"]
LONG_GROUPS = ["pong18"]  # only where asked for
WHAT = {
    "cartpole": "CartPole-v1, 64 envs × 32 steps, 4 epochs, minibatch 512: steps/s",
    "async": "CartPole-v1, asynchronous, 1 epoch, minibatch 1,024: steps/s",
    "time475": "CartPole-v1, process start to a greedy return of 475: seconds",
    "pong": "Pong, asynchronous, 1 epoch: steps/s",
    "pong18": "Pong, process start to a greedy return of 18: seconds",
    "pong0": "Pong, process start to a mean return of 0 in training: seconds",
    "start": "CartPole-v1, process start to the first update: seconds",
    "limit": "Pong, 1 / (1/stepping + 1/forward + 1/training): steps/s",
}


class Ratio(NamedTuple):
    """Ours ÷ theirs for rates, theirs ÷ ours for times. The peer "best" is the one that did best."""

    name: str
    group: str
    peer: str
    bar: float
    peer_group: str = ""
    variant: str = ""


RATIOS = [
    Ratio("cartpole_vs_cleanrl", "cartpole", "cleanrl", 1.5),
    Ratio("cartpole_vs_sb3", "cartpole", "sb3", 3.0),
    Ratio("cartpole_vs_rllib", "cartpole", "rllib", 4.0),
    Ratio("cartpole_async_vs_sample_factory", "async", "sample_factory", 4.0),
    Ratio("cartpole_time_to_475_vs_best", "time475", "best", 2.0),
    Ratio("pong_async_vs_sample_factory", "pong", "sample_factory", 1.5),
    Ratio("pong_vs_rllib", "pong", "rllib", 3.0),
    Ratio("pong_vs_limit", "pong", "limit", 0.75, peer_group="limit"),
    *(
        Ratio(f"pong_{name.lower()}_time_to_{goal}_vs_best", f"pong{goal}", "best", 2.0, variant=name)
        for goal in (0, 18)
        for name in ("PPO", "APPO")
    ),
    Ratio("start_vs_sb3", "start", "sb3", 0.83, variant="same work"),
]


@dataclass
class Entry:
    """A contestant in one of its variants, and what its runs gave. Seconds that were too many are infinite."""

    group: str
    name: str
    variant: str
    threads: int | None
    command: list[str]
    venv: str
    metrics: list[float] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""

    @property
    def title(self) -> str:
        return " ".join(part for part in (self.group, self.name, self.variant) if part)

    @property
    def metric(self) -> float:
        return median(self.metrics)

    def beats(self, other: Entry) -> bool:
        return self.metric < other.metric if self.group in TIMES else self.metric > other.metric


def our_entries(group: str, *, quick: bool, variants: list[str]) -> list[Entry]:
    found = []
    for ours in OURS.get(group, []):
        if variants and ours.variant not in variants:
            continue
        steps = ours.quick_steps if quick else ours.steps
        command = [str(ROOT / ".venv" / "bin" / "ludus"), *ours.command.split(), "--steps", str(steps), "--json"]
        found.append(Entry(group, "ludus", ours.variant, None, command, ""))
    return found


def peer_entries(group: str, *, quick: bool) -> list[Entry]:
    found = []
    for peer in PEERS:
        if peer.group == group:
            script, *arguments = peer.command.split()
            python = ROOT / (f".venv-peers-{peer.venv}" if peer.venv else ".venv") / "bin" / "python"
            command = [str(python), str(ROOT / "benchmarks" / "train_contestants" / script), *arguments]
            if peer.seconds is not None:
                command += ["--seconds", str(peer.seconds / 4 if quick else peer.seconds)]
            found.append(Entry(group, peer.name, peer.variant, peer.threads, command, peer.venv))
    return found


class Race:
    """All entries, and the rounds they run."""

    def __init__(self, entries: list[Entry], *, folder: Path, stage: Stage, progress: Progress) -> None:
        self.entries = entries
        self._folder = folder
        self._stage = stage
        self._progress = progress
        self._runs = 0

    def run(self, rounds: int, repeats: dict[str, int]) -> None:
        """Everyone in the first round, then those who can still matter; each time another one begins."""
        for turn in range(rounds):
            for group in [*GROUPS, *LONG_GROUPS]:
                for repeat in range(repeats.get(group, 1)):
                    those = [e for e in self.entries if e.group == group and self._matters(e)]
                    first = (turn + repeat) % max(1, len(those))
                    for entry in [*those[first:], *those[:first]]:
                        self._run(entry, f"round {turn + 1}/{rounds}")

    def best(self, group: str, name: str, variant: str = "") -> Entry | None:
        """The best variant of a contestant, or of all peers."""
        best: Entry | None = None
        for e in self.entries:
            named = e.name == name or (name == "best" and e.name != "ludus")
            if e.group == group and named and e.metrics and variant in ("", e.variant):
                best = e if best is None or e.beats(best) else best
        return best

    def derive_pong0(self) -> None:
        """From the runs of `pong18`, when the mean return in training was first 0."""
        for e in [e for e in self.entries if e.group == "pong18" and e.metrics]:
            ratio = PUBLISHED_STEPS["pong0"] / PUBLISHED_STEPS["pong18"]
            seconds = [result["seconds_to_0"] for result in e.results] if e.name == "ludus" else [
                metric * ratio for metric in e.metrics
            ]  # fmt: skip
            if all(second is not None for second in seconds):
                self.entries.append(Entry("pong0", e.name, e.variant, e.threads, e.command, e.venv, seconds))

    def _matters(self, entry: Entry) -> bool:
        """No more runs for what failed, for slower variants, and for those twice as slow as the best to reach 475."""
        if entry.failure:
            return False
        if not entry.metrics or entry.name == "ludus":
            return True
        if entry.group == "time475":
            best = self.best("time475", "best")
            return best is None or entry.metric <= 2 * best.metric
        return entry is self.best(entry.group, entry.name)

    def _run(self, entry: Entry, when: str) -> None:
        self._runs += 1
        seed = 1 + len(entry.metrics)
        command = [*entry.command, "--seed", str(seed)]
        if entry.name == "ludus":
            command += ["--project", str(self._folder / f"project{self._runs}")]
        run = Run(f"{self._runs} {entry.title}", command, folder=self._folder, threads=entry.threads)
        self._stage.children.append(run)
        try:
            result = run.result(timeout_s=GIVE_UP_PONG_S if entry.group == "pong18" else GIVE_UP_S)
            metric = read_metric(entry, result)
            if entry.group == "pong18" and entry.name == "ludus":
                result["seconds_to_0"] = seconds_to(0.0, Path(result["trial"]))
            if metric <= 0:
                raise BenchmarkError(f"{entry.title} got nothing done: {json.dumps(result)[:500]}")
            entry.metrics.append(metric)
            entry.results.append(result)
            said = f"{entry.metrics[-1]:,.1f}" + (" s" if entry.group in TIMES else " steps/s")
        except Late as e:
            if entry.group == "time475":
                entry.metrics.append(math.inf)
                said = str(e)
            else:
                entry.failure = said = str(e)
        except BenchmarkError as e:
            entry.failure = said = str(e)
        finally:
            run.ask_to_stop()
            run.stop()
            self._stage.children.remove(run)
        self._progress.step(f"{when}  {entry.title}: {said}")


def read_metric(entry: Entry, result: dict[str, Any]) -> float:
    """What the group asks for. To 475 counts, for all, until the evaluation of 20 greedy episodes that reached it."""
    try:
        if entry.group == "pong18" and entry.name != "ludus":
            return PUBLISHED_STEPS["pong18"] / float(result["steps_per_second"])
        if entry.name != "ludus":
            return float(result["seconds" if entry.group in TIMES else "steps_per_second"])
        if entry.group in ("time475", "pong18"):
            asked = int(entry.command[entry.command.index("--steps") + 1])
            if result["steps"] >= asked:
                raise Late(f"{entry.title} did not reach it in {asked:,} steps")
            return float(result["seconds_to_return"])
        if entry.group == "start":
            return float(result["seconds_to_first_update"])
        return float(result.get("train_steps_per_second") or result["steps_per_second"])
    except (KeyError, TypeError) as e:
        raise BenchmarkError(f"{entry.title} gave no such metric ({e!r}): {json.dumps(result)[:500]}") from None


def seconds_to(goal: float, trial: Path) -> float | None:
    """From process start until the mean return of training's last 100 episodes was `goal`; None: it never was."""
    for line in (trial / "metrics.jsonl").read_text().splitlines():
        values = json.loads(line)
        if values.get("episode/return", -math.inf) >= goal:
            return float(values["wall_s"])
    return None


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """All groups; the result is the JSON object of DESIGN §9."""
    entries = []
    for group in args.only:
        entries += [] if args.no_ludus else our_entries(group, quick=args.quick, variants=args.variants)
        entries += [] if args.no_peers else peer_entries(group, quick=args.quick)
    progress.step("setting up")
    venvs = sorted({e.venv for e in entries if e.venv})
    make_environments("setup", *(f".venv-peers-{venv}/.ready" for venv in venvs))
    with Stage() as stage:
        race = Race(entries, folder=stage.folder, stage=stage, progress=progress)
        race.run(args.rounds, {} if args.quick else REPEATS)
        race.derive_pong0()
    progress.step("done")
    ratios, best_peers = compare(race)
    medians = {**metrics(race), "best_peers": best_peers}
    failures = {e.title: e.failure for e in entries if e.failure}
    return {"ratios": ratios, "medians": medians, "versions": versions(entries), "failures": failures}


def compare(race: Race) -> tuple[dict[str, float], dict[str, str]]:
    """The ratios that this run can tell, and which peer, in which variant, each was taken against."""
    ratios, best_peers = {}, {}
    for ratio in RATIOS:
        ours = race.best(ratio.group, "ludus", ratio.variant)
        theirs = race.best(ratio.peer_group or ratio.group, ratio.peer)
        if ours and theirs and math.isfinite(ours.metric) and math.isfinite(theirs.metric):
            quotient = ours.metric / theirs.metric
            ratios[ratio.name] = round(1 / quotient if ratio.group in TIMES else quotient, 3)
            best_peers[ratio.name] = " ".join(part for part in (theirs.name, theirs.variant) if part)
    return ratios, best_peers


def metrics(race: Race) -> dict[str, Any]:
    """By group and contestant: the median, and the metric of each run in its order. null: given up."""
    found: dict[str, Any] = {}
    for e in race.entries:
        if e.metrics:
            name = f"{e.name} ({e.variant})" if e.variant else e.name
            runs = [round(x, 2) if math.isfinite(x) else None for x in e.metrics]
            middle = round(e.metric, 2) if math.isfinite(e.metric) else None
            found.setdefault(e.group, {})[name] = {"median": middle, "runs": runs}
            if e.group == "time475" and e.name == "ludus":
                found["time475"][name]["final_returns"] = [result["eval_return_mean"] for result in e.results]
            if e.group == "limit":
                found["limit"][name]["parts"] = e.results[-1]["parts"]
    start = race.best("start", "ludus", "as typed")
    if start:
        found["start_seconds"] = round(start.metric, 3)
    return found


def versions(entries: list[Entry]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    for e in entries:
        for result in e.results:
            side = f"peers-{e.venv}" if e.venv else "ludus"
            found.setdefault(side, {}).update(result.get("versions") or {})
    return found


def print_result(result: dict[str, Any]) -> None:
    for group in WHAT:
        rows = result["medians"].get(group, {})
        if rows:
            print(f"\n{WHAT[group]:64}{'median':>10}   runs")
        order = sorted(rows.items(), key=lambda item: item[1]["median"] or math.inf, reverse=group not in TIMES)
        for name, row in order:
            print(f"  {name:62}{shown(row['median']):>10}   {' '.join(shown(x) for x in row['runs'])}")
            for part, (setting, rate) in row.get("parts", {}).items():
                print(f"    {part}: {setting}: {rate:,.0f}")
    for title, failure in result["failures"].items():
        print(f"\nFAILED  {title}: {failure}")
    print(f"\n{'ratio (higher is better)':40}{'':>8}{'bar':>6}  peer")
    for ratio in RATIOS:
        if ratio.name in result["ratios"]:
            value = result["ratios"][ratio.name]
            below = "  BELOW THE BAR" if value < ratio.bar else ""
            print(f"  {ratio.name:38}{value:8.2f}{ratio.bar:6}  {result['medians']['best_peers'][ratio.name]}{below}")


def shown(metric: float | None) -> str:
    if metric is None:
        return f"> {GIVE_UP_S:.0f}"
    return f"{metric:,.0f}" if metric >= 200 else f"{metric:.2f}"


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--json", action="store_true", help="one JSON object on the last line of stdout")
    add("--rounds", type=int, default=3, help="turns of each contestant (default: %(default)s)")
    add("--quick", action="store_true", help="one short round: shows that it works, not how fast")
    groups = [*GROUPS, *LONG_GROUPS]
    add("--only", nargs="+", choices=groups, default=GROUPS, metavar="GROUP", help=f"some of {', '.join(groups)}")
    known = sorted({ours.variant for some in OURS.values() for ours in some if ours.variant})
    add("--variants", nargs="+", choices=known, default=[], help="of ours, only these (default: all)")
    add("--no-ludus", action="store_true", help="peers only")
    add("--no-peers", action="store_true", help="Ludus only")
    args = parser.parse_args(argv)
    if args.quick:
        args.rounds = 1
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return conclude("train", lambda: run(args, Progress("train")), print_result, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
