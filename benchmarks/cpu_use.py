"""Does anyone spin? CPU of idle connections and of calls, what a ping-pong leaves for others. Linux only."""

from __future__ import annotations

import os
import time
from statistics import median
from typing import Any

from field import ANSWER_S, Contestant, Progress, Row
from harness import Stage

LEAD_S = 0.1  # a ping-pong starts this much before the burners, and ends after them


def of_idle(contestants: dict[str, Contestant], *, seconds: float) -> dict[str, dict[str, float]]:
    """CPU seconds per second of each end of a connection on which nothing happens."""
    ends = [(name, end, getattr(c, end)) for name, c in contestants.items() for end in ("server", "client")]
    ends = [(name, end, child) for name, end, child in ends if child is not None]
    before = [(time.monotonic(), child.cpu_s()) for _, _, child in ends]
    time.sleep(seconds)
    result: dict[str, dict[str, float]] = {}
    for (name, end, child), (since, used) in zip(ends, before):  # noqa: B905 (strict= is not in Python 3.8)
        cores = (child.cpu_s() - used) / (time.monotonic() - since)
        result.setdefault(name, {})[end] = round(cores, 5)
    return result


def of_calls(c: Contestant, row: Row, *, seconds: float, rounds: int) -> dict[str, float]:
    """Both ends together: cores that a ping-pong keeps busy (2.0: they never sleep), CPU time per call."""
    cores, per_call = [], []
    for _ in range(rounds):
        before = c.client.cpu_s() + c.server.cpu_s()
        start = time.monotonic()
        rate = c.slice(row, seconds)
        elapsed = time.monotonic() - start
        used = c.client.cpu_s() + c.server.cpu_s() - before
        cores.append(used / elapsed)
        per_call.append(1e6 * used / (rate * elapsed))
    return {"cores": round(median(cores), 3), "cpu_us_per_call": round(median(per_call), 1)}


def beside_burners(
    stage: Stage,
    rivals: dict[str, Contestant],
    row: Row,
    *,
    python: str,
    seconds: float,
    rounds: int,
    progress: Progress,
) -> dict[str, Any]:
    """Two processes that compute, one a core: their rate alone, then beside each ping-pong, in turns."""
    burners = _start_burners(stage, python)
    label = f"{row.name} beside burners"
    burnt: dict[str, list[float]] = {name: [] for name in ("alone", *rivals)}
    called: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(rounds):
        for name in burnt:
            progress.say(f"round {turn + 1}/{rounds}  burners and {name}")
            rival, whole_s = rivals.get(name), seconds + 3 * LEAD_S
            if rival is not None:
                rival.begin(row, whole_s, label=label)
                time.sleep(LEAD_S)
            for burner in burners:
                burner.begin(row, seconds)
            burnt[name].append(sum(burner.end(seconds) for burner in burners))
            if rival is not None:
                called[name].append(rival.end(whole_s))
    alone = median(burnt["alone"])
    result: dict[str, Any] = {"alone": {"burners_rate": round(alone, 1)}}
    for name, rival in rivals.items():
        rate = median(burnt[name])
        metrics = {"burners_rate": round(rate, 1), "burners_fall": round(1 - rate / alone, 4)}
        result[name] = {**metrics, "rate": round(median(called[name]), 1), **rival.latencies()[label]}
    return result


def _start_burners(stage: Stage, python: str) -> list[Contestant]:
    cores = sorted(os.sched_getaffinity(0))[:2]
    children = [stage.begin(f"burner {core}", python, "contestants/burner.py", str(core)) for core in cores]
    stage.ready(children)
    for child in children:
        child.ask({"do": "open", "name": child.name}, timeout_s=ANSWER_S)
    return [Contestant(child.name, frozenset(), [], child, None) for child in children]
