"""32 callers against 3 replicas, one killed -9 every second, replies dropped, delayed and delivered twice.

    python benchmarks/chaos.py [--seconds 20] [--callers 32] [--json]

Every call must end in exactly one execution, recorded in a ledger, or in a typed error, and then in one execution at
most. Nothing may hang, and a dead replica must be noticed within 3 s. Exits non-zero when any of that does not hold.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from ludus import discovery, errors, launch
from ludus.program.program import Program, RestartPolicy
from ludus.testing.faults import Faults
from ludus.workers.register import register
from ludus.workers.solver import Solver

REPLICAS = 3
CALL_TIMEOUT_S = 10.0
NOTICE_S = 3.0


class Replica:
    """Writes down every call it runs, with one atomic write each, before it answers."""

    def __init__(self, folder: str) -> None:
        self._ledger = os.open(Path(folder) / f"ledger-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @register
    def work(self, caller: int, number: int, work_s: float) -> int:
        os.write(self._ledger, f"{caller} {number}\n".encode())
        if work_s:
            time.sleep(work_s)
        return number


@dataclasses.dataclass
class Report:
    """What happened, and what of it should not have."""

    seconds: float
    num_calls: int = 0
    num_answered: int = 0
    num_kills: int = 0
    num_moved: int = 0
    errors: dict[str, int] = dataclasses.field(default_factory=dict)
    faults: dict[str, int] = dataclasses.field(default_factory=dict)
    longest_call_s: float = 0.0
    longest_notice_s: float = 0.0
    violations: list[str] = dataclasses.field(default_factory=list)


class Caller(threading.Thread):
    """Makes one call after another and keeps what became of each."""

    def __init__(self, index: int, solver: Solver, stop: threading.Event) -> None:
        super().__init__(daemon=True, name=f"caller-{index}")
        self.index = index
        self.solver = solver
        self.outcomes: list[int | Exception] = []
        self.longest_s = 0.0
        self._over = stop
        self._dice = random.Random(index)

    def run(self) -> None:
        while not self._over.is_set():
            number = len(self.outcomes)
            work_s = self._dice.choice((0.0, 0.0, 0.001, 0.005))
            began = time.monotonic()
            outcome: int | Exception
            try:
                outcome = self.solver.submit(
                    "replica", "work", (self.index, number, work_s), timeout_s=CALL_TIMEOUT_S
                ).result()
            except Exception as error:  # judged by `_judge`: only Ludus's own types are fine
                outcome = error
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            self.outcomes.append(outcome)


class Killer(threading.Thread):
    """Kills a replica -9 every `every_s`, and measures how long its name stays with its old address."""

    def __init__(self, run: Any, names: Any, stop: threading.Event, every_s: float) -> None:
        super().__init__(daemon=True, name="killer")
        self._launched = run
        self._names = names
        self._over = stop
        self._every_s = every_s
        self._dice = random.Random(0)
        self.notices: list[float] = []
        self.num_kills = 0

    def run(self) -> None:
        due = time.monotonic() + self._every_s
        while not self._over.wait(max(due - time.monotonic(), 0.0)):
            due += self._every_s
            alive = [record for record in self._launched.workers() if record.pid and record.status == "running"]
            if not alive:
                continue
            victim = self._dice.choice(alive)
            key = f"{self._launched.experiment}/{self._launched.trial}/worker/{victim.name}"
            noticed = threading.Event()
            before = []

            def calls(_name: str, value: str | None, before: list[Any] = before, noticed: Any = noticed) -> None:
                if not before:
                    before.append(value)
                elif value != before[0]:
                    noticed.set()

            watch = self._names.watch_names(key, calls)
            while not before and not self._over.is_set():
                time.sleep(0.002)
            killed = time.monotonic()
            os.kill(victim.pid, signal.SIGKILL)
            self.num_kills += 1
            self.notices.append(time.monotonic() - killed if noticed.wait(2 * NOTICE_S) else float("inf"))
            watch.close()


def run(*, seconds: float, num_callers: int, folder: Path, kill_every_s: float = 1.0) -> Report:
    """One storm; the report says what happened."""
    report = Report(seconds=seconds)
    program = Program("chaos")
    program.add(
        "replica",
        Replica,
        str(folder),
        replicas=REPLICAS,
        restarts=RestartPolicy(max_restarts=1000, window_s=60.0, backoff_s=0.05, max_backoff_s=0.2),
    )
    faults = [Faults(seed=i, drop=0.02, delay=0.05, duplicate=0.05, max_delay_s=0.05) for i in range(num_callers)]
    stop_calls, stop_kills = threading.Event(), threading.Event()
    with launch.local(program, project=folder / "trials") as launched:
        names = discovery.connect(launched.names_url)
        solvers = [Solver(launched.experiment, launched.trial, names=names, opener=fault.open) for fault in faults]
        callers = [Caller(i, solver, stop_calls) for i, solver in enumerate(solvers)]
        killer = Killer(launched, names, stop_kills, kill_every_s)
        for thread in (*callers, killer):
            thread.start()
        time.sleep(seconds)
        stop_kills.set()
        killer.join(3 * NOTICE_S)
        stop_calls.set()
        until = time.monotonic() + CALL_TIMEOUT_S + 5.0
        for caller in callers:
            caller.join(max(until - time.monotonic(), 0.0))
            if caller.is_alive():
                report.violations.append(f"caller {caller.index} hangs in call {len(caller.outcomes)}")
        report.num_moved = sum(stats.num_moved for s in solvers for stats in s.statistics().values())
        for solver in solvers:
            solver.close()
        names.close()
    report.num_kills = killer.num_kills
    report.longest_notice_s = max(killer.notices, default=0.0)
    report.longest_call_s = max(caller.longest_s for caller in callers)
    for fault in faults:
        for name, count in dataclasses.asdict(fault.statistics).items():
            report.faults[name] = report.faults.get(name, 0) + count
    _judge(report, callers, folder)
    return report


def _judge(report: Report, callers: list[Caller], folder: Path) -> None:
    runs: collections.Counter[tuple[int, int]] = collections.Counter()
    for ledger in folder.glob("ledger-*"):
        for line in ledger.read_text().splitlines():
            caller, number = line.split()
            runs[int(caller), int(number)] += 1
    for key, count in runs.items():
        if count > 1:
            report.violations.append(f"call {key} ran {count} times")
    for caller in callers:
        for number, outcome in enumerate(caller.outcomes):
            report.num_calls += 1
            ran = runs[caller.index, number]
            if isinstance(outcome, errors.RpcError):
                kind = type(outcome).__name__
                report.errors[kind] = report.errors.get(kind, 0) + 1
                if isinstance(outcome, errors.Unreachable) and ran:
                    report.violations.append(f"call {caller.index}/{number} ran and was said not to have run")
            elif isinstance(outcome, Exception):
                report.violations.append(f"call {caller.index}/{number} ended in {outcome!r}")
            else:
                report.num_answered += 1
                if outcome != number:
                    report.violations.append(f"call {caller.index}/{number} was answered with {outcome}")
                if ran != 1:
                    report.violations.append(f"call {caller.index}/{number} was answered and ran {ran} times")
    if report.longest_notice_s > NOTICE_S:
        report.violations.append(f"a dead replica was noticed after {report.longest_notice_s:.2f} s")
    if report.longest_call_s > CALL_TIMEOUT_S + 1.0:
        report.violations.append(f"a call took {report.longest_call_s:.2f} s, past its deadline")
    if not report.num_kills or not report.num_answered or not report.faults.get("num_dropped"):
        report.violations.append("the storm did not blow: no kill, no answer or no fault")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--json", action="store_true", help="the last line is the report as one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ludus-chaos-") as folder:
        report = run(seconds=options.seconds, num_callers=options.callers, folder=Path(folder))
    errors_seen = ", ".join(f"{name} {count}" for name, count in sorted(report.errors.items())) or "none"
    print(f"{report.num_calls} calls in {report.seconds:g} s, {report.num_answered} answered, {report.num_kills} kills")
    print(f"typed errors: {errors_seen}; calls moved to another replica: {report.num_moved}")
    print(f"faults on replies: {report.faults}")
    print(
        f"longest call {report.longest_call_s:.2f} s; longest until a death was noticed {report.longest_notice_s:.2f} s"
    )
    for violation in report.violations[:20]:
        print(f"VIOLATION: {violation}")
    print("every call ran once or ended in a typed error" if not report.violations else "FAILED")
    if options.json:
        print(json.dumps(dataclasses.asdict(report)))
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
