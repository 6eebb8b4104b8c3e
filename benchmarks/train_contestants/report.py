"""The contestant's end of a training benchmark: one JSON line on stdout, whatever its library prints.

report = Report.take_stdout()
pace = Pace()
while pace.measured_s() < seconds:
    update()
    pace.mark(steps)
report.send("stable-baselines3", steps_per_second=pace.rate())
"""

from __future__ import annotations

import json
import os
import time
from importlib import metadata
from statistics import median
from typing import Any, TextIO


class Report:
    """The one line that the benchmark reads."""

    def __init__(self, line: TextIO) -> None:
        self._line = line
        self._start = float(os.environ.get("BENCH_START") or time.time())

    @classmethod
    def take_stdout(cls) -> Report:
        """Keeps stdout for the report; from here on everything else that is printed goes to stderr."""
        line = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        return cls(line)

    def seconds(self) -> float:
        """Since this process was started, imports included."""
        return time.time() - self._start

    def send(self, *packages: str, **metrics: Any) -> None:
        versions = {name: metadata.version(name) for name in (*packages, "torch", "gymnasium", "numpy")}
        print(json.dumps({**metrics, "versions": versions}), file=self._line, flush=True)


class Pace:
    """How fast steps were trained, from marks set after each update; the first marks are warm-up."""

    def __init__(self, *, skip: int = 2) -> None:
        self._skip = skip
        self._marks: list[tuple[float, int]] = []

    def mark(self, steps: int) -> None:
        """`steps`: environment steps trained on so far."""
        self._marks.append((time.perf_counter(), steps))

    def measured_s(self) -> float:
        kept = self._marks[self._skip - 1 :]
        return kept[-1][0] - kept[0][0] if kept else 0.0

    def rate(self) -> float:
        kept = self._marks[self._skip - 1 :]
        return (kept[-1][1] - kept[0][1]) / (kept[-1][0] - kept[0][0])

    def median_rate(self, *, warmup_s: float, window_s: float) -> float:
        """For pipelines that settle slowly: the median over windows, without the first `warmup_s`."""
        begin = self._marks[0][0] + warmup_s
        rates, (window_time, window_steps) = [], next(mark for mark in self._marks if mark[0] >= begin)
        for now, steps in self._marks:
            if now - window_time >= window_s:
                rates.append((steps - window_steps) / (now - window_time))
                window_time, window_steps = now, steps
        return median(rates) if rates else self.rate()
