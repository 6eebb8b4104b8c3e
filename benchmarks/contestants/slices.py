"""What every contestant's process shares: its end of the JSON lines, and the loops that are timed.

The loops are the same for Ludus and for its peers; only `call`, `submit` and `finished` differ.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, Protocol

import numpy as np

Nest = dict[str, np.ndarray]

SHAPES = {64: (64,), 84 * 84 * 4: (84, 84, 4), 1 << 20: (1 << 20,)}
NUM_WARM_UP_CALLS = 10


class Caller(Protocol):
    """One connection, one call at a time."""

    def call(self, nest: Nest) -> Nest: ...


class Callers(Protocol):
    """Many connections in one process, one call outstanding on each."""

    num_callers: int

    def submit(self, caller: int, nest: Nest) -> None: ...

    def finished(self) -> Iterator[tuple[int, Nest]]:
        """Blocks until a reply is there; yields every caller whose reply is, with the reply."""
        ...


class Channel:
    """The JSON lines to and from the harness. Whatever a library prints goes to stderr instead."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        _die_with_parent()

    def send(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def hello(self, *packages: str, **facts: Any) -> None:
        """The first line: versions of Python and of some packages, and what else there is to know."""
        versions = {"python": sys.version.split()[0], **{name: metadata.version(name) for name in packages}}
        self.send({"versions": versions, **facts})

    def take_orders(self, connect: Callable[[dict[str, Any]], Caller | Callers]) -> None:
        """Serves `open`, `slice` and `latencies` until stdin ends. `connect` answers `open`."""
        contestants: dict[str, Caller | Callers] = {}
        latencies: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for line in sys.stdin:
            order = json.loads(line)
            try:
                name = order["name"]
                if order["do"] == "open":
                    contestants[name] = connect(order)
                    self.send({})
                elif order["do"] == "slice":
                    label = order["label"]
                    sink = [] if label is None else latencies[name][label]
                    self.send(_slice(contestants[name], _nest(order["size"]), order["seconds"], sink))
                elif order["do"] == "latencies":
                    self.send({label: _percentiles(sink) for label, sink in latencies[name].items()})
            except Exception:
                self.send({"error": traceback.format_exc()})


def one_loop(caller: Caller, nest: Nest, seconds: float, latencies: list[float]) -> float:
    """Closed loop of one caller; returns the seconds it took."""
    clock, call, keep = time.perf_counter, caller.call, latencies.append
    start = before = clock()
    stop = start + seconds
    while before < stop:
        call(nest)
        now = clock()
        keep(now - before)
        before = now
    return before - start


def many_loop(callers: Callers, nest: Nest, seconds: float, latencies: list[float]) -> float:
    """Closed loops of many callers side by side; replies after the end are taken but not counted."""
    clock, submit, keep = time.perf_counter, callers.submit, latencies.append
    start = now = clock()
    stop = start + seconds
    since = [start] * callers.num_callers
    for caller in range(callers.num_callers):
        since[caller] = clock()
        submit(caller, nest)
    num_outstanding = callers.num_callers
    while num_outstanding:
        for caller, _ in callers.finished():
            now = clock()
            if now < stop:
                keep(now - since[caller])
                since[caller] = now
                submit(caller, nest)
            else:
                num_outstanding -= 1
    return seconds


def _slice(contestant: Any, nest: Nest, seconds: float, sink: list[float]) -> dict[str, float]:
    """A warm-up whose replies are compared with what was sent, then the timed loop."""
    num_before = len(sink)
    if hasattr(contestant, "call"):
        for _ in range(NUM_WARM_UP_CALLS):
            _check(contestant.call(nest), nest)
        elapsed = one_loop(contestant, nest, seconds, sink)
    else:
        for caller in range(contestant.num_callers):
            contestant.submit(caller, nest)
        waiting = set(range(contestant.num_callers))
        while waiting:
            for caller, reply in contestant.finished():
                _check(reply, nest)
                waiting.remove(caller)
        elapsed = many_loop(contestant, nest, seconds, sink)
    if len(sink) == num_before:
        raise AssertionError(f"no call came back within a slice of {seconds} s: ask for longer --seconds")
    return {"count": len(sink) - num_before, "elapsed": elapsed}


def _nest(size: int) -> Nest:
    return {"x": np.random.default_rng(size).integers(0, 256, SHAPES[size], dtype=np.uint8)}


def _check(reply: Nest, sent: Nest) -> None:
    if reply.keys() != sent.keys() or not np.array_equal(reply["x"].reshape(-1), sent["x"].reshape(-1)):
        raise AssertionError("the echo is not what was sent")


def _percentiles(latencies: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(latencies, [50, 99]) * 1e6
    return {"p50_us": round(float(p50), 1), "p99_us": round(float(p99), 1)}


def _die_with_parent() -> None:
    """Linux: a harness that is killed -9 takes its contestants with it."""
    if sys.platform.startswith("linux"):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
