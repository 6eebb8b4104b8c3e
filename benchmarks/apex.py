"""Ape-X with one simulator and with two, where stepping environments is what takes the time.

    python benchmarks/apex.py            a table for people
    python benchmarks/apex.py --json     the same, then one JSON object on the last line (DESIGN §9)

Both run in every round, one after the other. In the runs with two simulators one of them is killed again and again: it
comes back, and what the table was sampled from must stay within the band of its rate limiter.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENV = f"{ROOT / 'benchmarks' / 'slow_cartpole.py'}:make"
BATCH, UPDATES, MIN_SIZE, NUM_ENVS = 64, 0.1, 500, 8
SETTINGS = (
    f"--batch-size {BATCH} --updates-per-step {UPDATES} --min-size {MIN_SIZE} --num-envs {NUM_ENVS} --hidden 64,64"
)
PUSHED = 128  # steps of one segment, see `experiment/wiring.py`
TOLERANCE = max(2 * BATCH, 2 * UPDATES * BATCH * PUSHED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {"1 simulator": [], "2 simulators": []}
    balances: list[float] = []
    num_kills = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for simulators, name in enumerate(rates, 1):
                result, _ = train(Path(folder), f"{simulators}-{number}", simulators, options.steps)
                rates[name].append(result["train_steps_per_second"])
                print(f"round {number + 1}, {name}: {rates[name][-1]:.0f} steps/s", file=sys.stderr, flush=True)
            _, kills = train(Path(folder), f"killed-{number}", 2, options.steps, kill_every_s=3.0)
            num_kills += kills
            balances += balances_of(Path(folder) / f"killed-{number}")
    medians = {name: median(values) for name, values in rates.items()}
    furthest = max(abs(balance) for balance in balances)
    ratios = {"apex_2_vs_1": medians["2 simulators"] / medians["1 simulator"], "apex_band": TOLERANCE / furthest}
    print(f"{'':14s}  steps/s\n" + "\n".join(f"{name:14s}  {value:7.0f}" for name, value in medians.items()))
    print(f"two to one: {ratios['apex_2_vs_1']:.2f} (bar 1.7)")
    print(f"{num_kills} kills; samples were off their ratio by {furthest:.0f} at most, the band is {TOLERANCE:.0f}")
    if options.json:
        versions = {name: importlib.metadata.version(name) for name in ("ludus", "torch", "numpy")}
        versions["python"] = platform.python_version()
        print(json.dumps({"ratios": ratios, "medians": medians, "versions": versions}))
    return 0 if ratios["apex_2_vs_1"] >= 1.7 and ratios["apex_band"] >= 1.0 else 1


def train(
    project: Path, trial: str, simulators: int, steps: int, *, kill_every_s: float = 0.0
) -> tuple[dict[str, Any], int]:
    """The result, and how many simulators were killed."""
    words = f"train apex {ENV} --steps {steps} --simulators {simulators} --eval-episodes 0 --json {SETTINGS}"
    command = [sys.executable, "-m", "ludus.cli.main", *words.split(), "--project", str(project), "--trial", trial]
    run = subprocess.Popen(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    is_over, kills = threading.Event(), []
    killer = threading.Thread(target=kill, args=(project / trial, kill_every_s, is_over, kills))
    if kill_every_s:
        killer.start()
    out, err = run.communicate(timeout=600)
    is_over.set()
    if kill_every_s:
        killer.join()
    if run.returncode:
        raise SystemExit(f"ludus {words}: exit code {run.returncode}\n{err[-2000:]}")
    result: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return result, len(kills)


def kill(folder: Path, every_s: float, is_over: threading.Event, kills: list[int]) -> None:
    """The first simulator, again and again, once it plays."""
    metrics = folder / "metrics.jsonl"
    while not metrics.exists() and not is_over.is_set():
        time.sleep(0.1)
    while not is_over.wait(every_s):
        pid = pid_of(folder, "simulator/0")
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            kills.append(pid)


def pid_of(folder: Path, worker: str) -> int | None:
    """The process that was given the worker's specification; `None` while there is none."""
    wanted = f"{worker.replace('/', '-')}.spec".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended since
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if wanted in command and str(folder).encode() in command:
                return int(entry.name)
    return None


def balances_of(folder: Path) -> list[float]:
    """By how much samples were off what inserts paid for, at each line of metrics after the first samples."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    pairs = [
        (line["count/replay_inserted"], line["count/replay_sampled"])
        for line in lines
        if "count/replay_sampled" in line
    ]
    return [(inserted - MIN_SIZE) * UPDATES * BATCH - sampled for inserted, sampled in pairs if sampled]


if __name__ == "__main__":
    raise SystemExit(main())
