"""What is asked of a contestant after each step of its environment: how fast is it, or has it learnt its task?

asked = Question.from_command_line("sac")
while not asked.is_answered(steps):
    step()
asked.send("stable-baselines3")

A `rate` is measured in environment steps, from WARM_STEPS on: compiling, and the steps before learning starts, do not
count. `to-goal` counts from the start of the process, evaluations included.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from greedy import EVERY_STEPS, TASKS, Act, Task

sys.path.append(str(Path(__file__).resolve().parents[1]))

from train_contestants.report import Report

WARM_STEPS = 1000
LEARNING_STARTS = 500  # of `rate`


class Question:
    library: str
    algorithm: str

    def __init__(self, task: Task, report: Report, args: argparse.Namespace) -> None:
        self.task = task
        self.threads: int = args.threads
        self.seed: int = args.seed
        self.settings: str = "shared" if args.question == "rate" else args.settings
        self.act: Act | None = None  # set by the contestant before its first step; greedy
        self._report = report
        self._steps: int | None = args.steps if args.question == "rate" else None
        self._warm_at = self._warm_cpu_s = 0.0
        self._answer: dict[str, float] = {}

    @classmethod
    def from_command_line(cls, algorithm: str | None = None) -> Question:
        """Without an algorithm, it and the library are the first two words; `library` and `algorithm` are kept."""
        parser = argparse.ArgumentParser()
        if algorithm is None:
            parser.add_argument("library", choices=["sb3", "sbx"])
            parser.add_argument("algorithm", choices=list(TASKS))
        parser.add_argument("question", choices=["rate", "to-goal"])
        parser.add_argument("--settings", choices=["zoo", "cleanrl"], default="zoo", help="for to-goal")
        parser.add_argument("--steps", type=int, default=2000, help="for rate: steps that are timed")
        parser.add_argument("--threads", type=int, default=1)
        parser.add_argument("--one-core", action="store_true", help="hold the process to one core (Linux)")
        parser.add_argument("--seed", type=int, default=1)
        args = parser.parse_args()
        if args.one_core:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        report = Report.take_stdout()
        question = cls(TASKS[algorithm or args.algorithm], report, args)
        question.library, question.algorithm = getattr(args, "library", ""), algorithm or args.algorithm
        return question

    def is_answered(self, steps: int) -> bool:
        """Asked once before the first step and after each one."""
        if self._answer:
            return True
        if self._steps is not None:
            if steps == WARM_STEPS:
                self._warm_at, self._warm_cpu_s = time.perf_counter(), time.process_time()
            elif steps == WARM_STEPS + self._steps:
                elapsed = time.perf_counter() - self._warm_at
                cores = (time.process_time() - self._warm_cpu_s) / elapsed  # kept busy, whatever number was asked for
                self._answer = {"steps_per_second": self._steps / elapsed, "steps": steps, "cores": round(cores, 2)}
        elif steps > 0 and steps % EVERY_STEPS == 0:
            assert self.act is not None
            if self.task.play(self.act, steps) >= self.task.goal:
                self._answer = {"seconds": self._report.seconds(), "steps": steps}
        return bool(self._answer)

    def send(self, *packages: str) -> None:
        self._report.send(*packages, **self._answer)
