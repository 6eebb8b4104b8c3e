"""Ludus's SAC and DQN against Stable-Baselines3, SBX (JAX) and CleanRL's manner: rates, and time to a return.

    python benchmarks/offpolicy.py            a table for people
    python benchmarks/offpolicy.py --json     the same, then one JSON object on the last line (DESIGN §9)
    python benchmarks/offpolicy.py --only sac dqn --steps 5000

Everyone runs in every round, one after the other, each as a process of its own; medians over the rounds are
compared. This script needs only the standard library: Ludus runs in .venv, its peers in .venv-peers-sbx. What each
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

GIVE_UP_S = 300.0
WARM_STEPS = 1000  # before the steps of a rate are timed; as in offpolicy_contestants/progress.py

# ---- Our command lines. `--steps N --json --seed S --project DIR` are added to each. ---------------------------------
SHARED = "--hidden 256,256 --activation relu --min-size 500 --eval-episodes 0"
RATES = {
    "sac": f"train sac Pendulum-v1 --batch-size 256 --updates-per-step 1 {SHARED}",
    # Without what the peers' DQN does not compute, either; the target network is copied every 500 steps.
    "dqn": f"train dqn CartPole-v1 --batch-size 128 --updates-per-step 0.25 --no-double --target-every 125 {SHARED}",
}
TIMES = {
    "pendulum": "train sac Pendulum-v1 --stop-at-return -180",
    "cartpole": "train dqn CartPole-v1 --stop-at-return 475",
}
THREADS_OPTION = "--threads"  # of the rates
RATE_FIELD = "train_steps_per_second"
TIME_FIELD = "seconds_to_return"

# ---- What is measured. -----------------------------------------------------------------------------------------------
RATE_STEPS = {"sac": 3000, "dqn": 20_000}  # timed, after WARM_STEPS
TIME_STEPS = {"pendulum": 20_000, "cartpole": 50_000}  # ours has failed when these were not enough
ALGORITHMS = {"pendulum": "sac", "cartpole": "dqn"}
THREADS = (1, 2)
GROUPS = ["sac", "dqn", "pendulum", "cartpole"]
WHAT = {
    "sac": "SAC, Pendulum-v1, 1 update per step, batch 256, 2×256: steps/s",
    "dqn": "DQN, CartPole-v1, 1 update per 4 steps, batch 128, 2×256: steps/s",
    "pendulum": "SAC, Pendulum-v1, process start to a greedy return of -180: seconds",
    "cartpole": "DQN, CartPole-v1, process start to a greedy return of 475: seconds",
}
PEERS = ["sb3", "sbx", "cleanrl"]
LIMIT = "limit"  # the multiplications alone; of SAC, where they are most of the work
ONE_CORE = "1 thread, held to one core"


class Ratio(NamedTuple):
    """Ours ÷ theirs for rates, theirs ÷ ours for times. The peer "best" is the fastest; the variant "" is any."""

    name: str
    group: str
    peer: str
    variant: str
    bar: float | None
    peer_variant: str = ""  # where it is another one


def named_threads(n: int) -> str:
    return f"{n} thread{'s' if n > 1 else ''}"


BARS = {"sac_vs_sb3": 2.0, "sac_vs_sbx": 1.4, "dqn_vs_sb3": 1.6, "dqn_vs_sbx": 1.6}
RATIOS = [
    *(
        Ratio(
            f"{group}_vs_{peer}" + ("" if n == 1 else f"_{n}threads"),
            group,
            peer,
            named_threads(n),
            BARS.get(f"{group}_vs_{peer}") if n == 1 else None,
        )
        for n in THREADS
        for group in RATES
        for peer in PEERS
    ),
    *(Ratio(f"sac_vs_limit{'' if n == 1 else f'_{n}threads'}", "sac", LIMIT, named_threads(n), None) for n in THREADS),
    *(Ratio(f"{group}_vs_sbx_1core", group, "sbx", named_threads(1), None, ONE_CORE) for group in RATES),
    *(Ratio(f"time_vs_best_{group}", group, "best", "", 2.0) for group in TIMES),
]


@dataclass
class Entry:
    """A contestant in one of its variants, and what its runs gave. Seconds that were too many are infinite."""

    group: str
    name: str
    variant: str
    threads: int | None
    command: list[str]
    metrics: list[float] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""

    @property
    def title(self) -> str:
        return " ".join(part for part in (self.group, self.name, self.variant) if part)

    @property
    def metric(self) -> float:
        return median(self.metrics)


def our_entries(group: str, steps: int | None) -> list[Entry]:
    ludus = str(ROOT / ".venv" / "bin" / "ludus")
    if group in TIMES:
        command = [ludus, *TIMES[group].split(), "--steps", str(TIME_STEPS[group]), "--json"]
        return [Entry(group, "ludus", "", None, command)]
    total = WARM_STEPS + (steps or RATE_STEPS[group])
    command = [ludus, *RATES[group].split(), "--steps", str(total), "--json", THREADS_OPTION]
    return [Entry(group, "ludus", named_threads(n), n, [*command, str(n)]) for n in THREADS]


def limit_entries(group: str) -> list[Entry]:
    if group != "sac":
        return []
    script = ROOT / "benchmarks" / "offpolicy_contestants" / "limit.py"
    command = [str(ROOT / ".venv" / "bin" / "python"), str(script), "--threads"]
    return [Entry(group, LIMIT, named_threads(n), n, [*command, str(n)]) for n in THREADS]


def peer_entries(group: str, steps: int | None) -> list[Entry]:
    """The rates have one variant for each number of threads, and of SBX one that is held to a core, because XLA uses
    more than one thread whatever its flags say; the times also differ by settings."""
    algorithm = ALGORITHMS.get(group, group)
    found = []
    for name in PEERS:
        start = peer_command(name, algorithm)
        timed = ["rate", "--steps", str(steps or RATE_STEPS.get(group))]
        for n in THREADS:
            threads = ["--threads", str(n)]
            if group in RATES:
                found.append(Entry(group, name, named_threads(n), n, [*start, *timed, *threads]))
                continue
            settings = {"zoo": "RL Zoo's settings", **({"cleanrl": "its own settings"} if name == "cleanrl" else {})}
            for setting, title in settings.items():
                variant = f"{title}, {named_threads(n)}"
                found.append(Entry(group, name, variant, n, [*start, "to-goal", "--settings", setting, *threads]))
        if group in RATES and name == "sbx":
            found.append(Entry(group, name, ONE_CORE, 1, [*start, *timed, "--one-core"]))
    return found


def peer_command(name: str, algorithm: str) -> list[str]:
    folder = ROOT / "benchmarks" / "offpolicy_contestants"
    python = str(ROOT / ".venv-peers-sbx" / "bin" / "python")
    if name == "cleanrl":
        return [python, str(folder / f"single_file_{algorithm}.py")]
    return [python, str(folder / "with_sb3_sbx.py"), name, algorithm]


class Race:
    """All entries, and the rounds they run."""

    def __init__(self, entries: list[Entry], *, give_up_s: float, stage: Stage, progress: Progress) -> None:
        self.entries = entries
        self._give_up_s = give_up_s
        self._stage = stage
        self._progress = progress
        self._num_runs = 0

    def run(self, rounds: int) -> None:
        """Everyone in the first round, then those who can still matter; each time another one begins."""
        for turn in range(rounds):
            for group in GROUPS:
                those = [e for e in self.entries if e.group == group and self._matters(e)]
                first = turn % max(1, len(those))
                for entry in [*those[first:], *those[:first]]:
                    self._run(entry, f"round {turn + 1}/{rounds}")

    def best(self, group: str, name: str, variant: str = "") -> Entry | None:
        """The best variant of a contestant, or of all peers."""
        found = [
            e
            for e in self.entries
            if e.group == group and e.metrics and variant in ("", e.variant)
            and (e.name == name or (name == "best" and e.name not in ("ludus", LIMIT)))
        ]  # fmt: skip
        better = min if group in TIMES else max
        return better(found, key=lambda e: e.metric, default=None)

    def _matters(self, entry: Entry) -> bool:
        """No more runs for what failed, and for those twice as slow as the fastest peer to learn."""
        if entry.failure:
            return False
        if not entry.metrics or entry.name == "ludus" or entry.group in RATES:
            return True
        best = self.best(entry.group, "best")
        return best is None or entry.metric <= 2 * best.metric

    def _run(self, entry: Entry, when: str) -> None:
        self._num_runs += 1
        command = [*entry.command, "--seed", str(1 + len(entry.metrics))]
        if entry.name == "ludus":
            command += ["--project", str(self._stage.folder / f"project{self._num_runs}")]
        folder: Path = self._stage.folder
        run = Run(f"{self._num_runs} {entry.title}", command, folder=folder, threads=entry.threads)
        self._stage.children.append(run)
        try:
            result = run.result(timeout_s=self._give_up_s)
            entry.metrics.append(read_metric(entry, result))
            entry.results.append(result)
            said = f"{entry.metrics[-1]:,.1f}" + (" s" if entry.group in TIMES else " steps/s")
        except Late as e:
            said = str(e)
            if entry.group in TIMES:
                entry.metrics.append(math.inf)
            else:
                entry.failure = said
        except BenchmarkError as e:
            entry.failure = said = str(e)
        finally:
            run.ask_to_stop()
            run.stop()
            self._stage.children.remove(run)
        self._progress.step(f"{when}  {entry.title}: {said}")


def read_metric(entry: Entry, result: dict[str, Any]) -> float:
    """Steps per second, or seconds until the end of the evaluation that reached the goal."""
    try:
        if entry.name != "ludus":
            metric = float(result["seconds" if entry.group in TIMES else "steps_per_second"])
        elif entry.group in RATES:
            metric = float(result[RATE_FIELD])
        elif result["steps"] >= TIME_STEPS[entry.group]:
            raise Late(f"{entry.title} did not reach it in {TIME_STEPS[entry.group]:,} steps")
        else:
            metric = float(result[TIME_FIELD])
    except (KeyError, TypeError) as e:
        raise BenchmarkError(f"{entry.title} gave no such metric ({e!r}): {json.dumps(result)[:500]}") from None
    if metric <= 0:
        raise BenchmarkError(f"{entry.title} got nothing done: {json.dumps(result)[:500]}")
    return metric


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """All groups; the result is the JSON object of DESIGN §9."""
    entries = []
    for group in args.only:
        entries += [] if args.no_ludus else [*our_entries(group, args.steps), *limit_entries(group)]
        entries += [] if args.no_peers else peer_entries(group, args.steps)
    if args.threads:
        entries = [e for e in entries if e.threads in (None, args.threads)]
    progress.step("setting up")
    make_environments(*([] if args.no_ludus else ["setup"]), *([] if args.no_peers else ["peers-offpolicy"]))
    with Stage() as stage:
        race = Race(entries, give_up_s=args.give_up, stage=stage, progress=progress)
        race.run(args.rounds)
    progress.step("done")
    ratios, best_peers = compare(race)
    return {
        "ratios": ratios,
        "medians": {**metrics(entries), "best_peers": best_peers},
        "versions": versions(entries),
        "failures": {e.title: e.failure for e in entries if e.failure},
    }


def compare(race: Race) -> tuple[dict[str, float], dict[str, str]]:
    """The ratios that this run can give, and which peer, in which variant, each was taken against."""
    ratios, best_peers = {}, {}
    for ratio in RATIOS:
        ours = race.best(ratio.group, "ludus", ratio.variant)
        theirs = race.best(ratio.group, ratio.peer, ratio.peer_variant or ratio.variant)
        if ours and theirs and math.isfinite(ours.metric) and math.isfinite(theirs.metric):
            quotient = ours.metric / theirs.metric
            ratios[ratio.name] = round(1 / quotient if ratio.group in TIMES else quotient, 3)
            best_peers[ratio.name] = f"{theirs.name} ({theirs.variant})"
    return ratios, best_peers


def metrics(entries: list[Entry]) -> dict[str, Any]:
    """By group and contestant: the median, and of each run in its order its metric, steps and cores. null: given up."""
    found: dict[str, Any] = {}
    for e in entries:
        if e.metrics:
            row: dict[str, Any] = {
                "median": round(e.metric, 2) if math.isfinite(e.metric) else None,
                "runs": [round(x, 2) if math.isfinite(x) else None for x in e.metrics],
            }
            for name in ("steps", "cores"):
                if e.results and name in e.results[0]:
                    row[name] = [result[name] for result in e.results]
            found.setdefault(e.group, {})[f"{e.name} ({e.variant})" if e.variant else e.name] = row
    return found


def versions(entries: list[Entry]) -> dict[str, Any]:
    found: dict[str, Any] = {"system": platform.platform(), "cores": os.cpu_count()}
    for e in entries:
        for result in e.results:
            side = "ludus" if e.name in ("ludus", LIMIT) else "peers-sbx"
            found.setdefault(side, {}).update(result.get("versions") or {})
    return found


def print_result(result: dict[str, Any]) -> None:
    for group in GROUPS:
        rows = result["medians"].get(group, {})
        if rows:
            print(f"\n{WHAT[group]:72}{'median':>10}   runs")
        order = sorted(rows.items(), key=lambda item: item[1]["median"] or math.inf, reverse=group in RATES)
        for name, row in order:
            note = f"   ({row['cores'][-1]:.1f} cores)" if "cores" in row else ""
            if group in TIMES and "steps" in row:
                note = f"   (steps: {', '.join(f'{n:,}' for n in row['steps'])})"
            print(f"  {name:70}{shown(row['median']):>10}   {' '.join(shown(x) for x in row['runs'])}{note}")
    for title, failure in result["failures"].items():
        print(f"\nFAILED  {title}: {failure}")
    print(f"\n{'ratio (higher is better)':40}{'':>8}{'bar':>6}  peer")
    for ratio in RATIOS:
        if ratio.name in result["ratios"]:
            value = result["ratios"][ratio.name]
            below = "  BELOW THE BAR" if ratio.bar is not None and value < ratio.bar else ""
            bar = "–" if ratio.bar is None else ratio.bar
            print(f"  {ratio.name:38}{value:8.2f}{bar:>6}  {result['medians']['best_peers'][ratio.name]}{below}")


def shown(metric: float | None) -> str:
    if metric is None:
        return "given up"
    return f"{metric:,.0f}" if metric >= 200 else f"{metric:.2f}"


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--json", action="store_true", help="one JSON object on the last line of stdout")
    add("--rounds", type=int, default=3, help="runs of each contestant (default: %(default)s)")
    default = ", ".join(f"{group} {steps:,}" for group, steps in RATE_STEPS.items())
    add("--steps", type=int, help=f"steps that are timed for a rate (default: {default})")
    add("--threads", type=int, choices=THREADS, help="only with so many threads (default: with 1 and with 2)")
    add("--give-up", type=float, default=GIVE_UP_S, help="seconds after which a run has failed (default: %(default)s)")
    add("--only", nargs="+", choices=GROUPS, default=GROUPS, metavar="GROUP", help=f"some of {', '.join(GROUPS)}")
    add("--no-ludus", action="store_true", help="peers only")
    add("--no-peers", action="store_true", help="Ludus only")
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    if args.steps is not None and args.steps < 1:
        parser.error("--steps must be at least 1")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return conclude("offpolicy", lambda: run(args, Progress("offpolicy")), print_result, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
