"""`ludus demo --calls`: a program of seven workers for ten seconds. Calls flow, one worker is killed -9 and comes back.

player × 4 ──score(boards)──▶ oracle × 3      every call goes to the least busy live replica
"""

from __future__ import annotations

import collections
import logging
import os
import signal
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich import box, live, text
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from ludus import errors, launch
from ludus.command_line import trial_command
from ludus.launch import supervisor
from ludus.program import program as programs
from ludus.workers import panel as panels
from ludus.workers.register import register

__all__ = ["run"]

_VICTIM = "oracle/1"
_BACKOFF_S = 1.0  # long enough to be seen
_REFRESH_S = 0.25
_PATIENCE_S = 60.0  # for the killed worker, beyond the time of the demo


class Oracle:
    """A service: its method sees the boards of all callers that wait, stacked, and runs once for all of them."""

    @register(max_batch=64)
    def score(self, boards: np.ndarray) -> np.ndarray:
        scores: np.ndarray = np.tanh(boards.reshape(len(boards), -1).mean(axis=1))
        return scores


class Player:
    """Asks the oracle all the time. A call whose outcome is not known, because its replica died, it asks again."""

    def __init__(self, oracle: Any) -> None:
        self._oracle = oracle
        self._latencies: collections.deque[float] = collections.deque(maxlen=500)
        self._num_calls = 0
        self._num_asked_again = 0
        self._longest_s = 0.0

    def run(self) -> None:
        board = np.zeros((8, 8), np.float32)
        while True:
            began = time.perf_counter()
            self._ask(board)
            took = time.perf_counter() - began
            self._latencies.append(took)
            self._longest_s = max(self._longest_s, took) if self._num_calls > 10 else 0.0  # not the first meeting
            self._num_calls += 1

    def _ask(self, board: np.ndarray) -> None:
        while True:
            try:
                self._oracle.score(board)
            except errors.RpcError:
                self._num_asked_again += 1
            else:
                return

    def stats(self) -> dict[str, float]:
        """Shown by the control command `stats` beside the worker's own stats."""
        return {
            "num_calls": self._num_calls,
            "num_asked_again": self._num_asked_again,
            "p50_s": statistics.median(list(self._latencies) or [0.0]),
            "longest_s": self._longest_s,
        }


def build_program() -> programs.Program:
    program = programs.Program("demo")
    oracle = program.add("oracle", Oracle, replicas=3, restarts=programs.RestartPolicy(backoff_s=_BACKOFF_S))
    program.add("player", Player, oracle, replicas=4)
    return program


def run(*, project: str, seconds: float) -> int:
    """Returns 0 only if calls went on while the worker was dead, and it came back and was called again."""
    console = Console(highlight=False)
    handler = RichHandler(console=console, show_path=False, show_time=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    seen = Seen()
    with launch.local(build_program(), project=project, on_event=seen.on_event) as running:
        console.print(f"Seven workers, each a process of its own. Their logs: {running.trial_dir}/logs")
        console.print(f"From another shell: [bold]{trial_command('ctl', running.trial_dir, 'list')}[/bold]")
        screen = _Table(console) if console.is_terminal else _Lines(console)
        with screen:
            _play(running, seen, screen, seconds=max(5.0, seconds))
    return _sum_up(console, seen)


def _play(running: launch.Run, seen: Seen, screen: _Table | _Lines, *, seconds: float) -> None:
    """Look at the workers four times a second; kill one after a good third of the time.

    On a busy machine the killed one takes longer than that to come back: it is waited for.
    """
    panel = running.panel()
    while (now := time.monotonic() - seen.began) < seconds or (not seen.is_complete and now < seconds + _PATIENCE_S):
        panel.auto_connect()
        seen.take(panel.group_request("stats", timeout=1.0))
        if seen.killed_at is None and time.monotonic() - seen.began > seconds * 0.35:
            seen.kill(next(record for record in running.workers() if record.name == _VICTIM))
        screen.show(seen, running.workers())
        running.wait(_REFRESH_S)


@dataclass
class Seen:
    """What was seen of the run, moment by moment. Times are on the monotonic clock."""

    began: float = field(default_factory=time.monotonic)
    stats: dict[str, dict[str, Any]] = field(default_factory=dict)  # of `stats`, by worker
    rates: dict[str, float] = field(default_factory=dict)  # calls/s, by worker
    killed_at: float | None = None
    killed_pid: int | None = None
    noticed_at: float | None = None
    back_at: float | None = None  # first seen to answer again
    num_calls_at_kill: int = 0
    num_calls_at_back: int = 0
    _taken_at: dict[str, float] = field(default_factory=dict)

    @property
    def num_calls(self) -> int:
        """Calls that players had answers to."""
        return sum(_num_calls(stats) for name, stats in self.stats.items() if name.startswith("player"))

    def total(self, metric: str) -> float:
        return sum(float(stats.get(metric, 0.0)) for stats in self.stats.values())

    def most(self, metric: str) -> float:
        return max((float(stats.get(metric, 0.0)) for stats in self.stats.values()), default=0.0)

    def p50_s(self) -> float:
        known = [stats["p50_s"] for stats in self.stats.values() if stats.get("p50_s")]
        return statistics.median(known) if known else 0.0

    def on_event(self, event: supervisor.Event) -> None:
        if event.kind is supervisor.EventKind.CRASHED and event.worker == _VICTIM and self.noticed_at is None:
            self.noticed_at = time.monotonic()

    def kill(self, record: supervisor.WorkerRecord) -> None:
        if record.pid is not None:
            self.num_calls_at_kill, self.killed_pid = self.num_calls, record.pid
            self.killed_at = time.monotonic()
            os.kill(record.pid, signal.SIGKILL)

    @property
    def is_complete(self) -> bool:
        """The killed worker has come back, and calls were answered since."""
        return self.back_at is not None and self.num_calls > self.num_calls_at_back

    def take(self, outcomes: list[panels.Outcome]) -> None:
        """Take in what the workers answered to `stats`; one that did not answer has no rate."""
        now = time.monotonic()
        self.rates.clear()
        for outcome in outcomes:
            if not outcome.ok:
                continue
            name, new, old = outcome.worker, outcome.value, self.stats.get(outcome.worker)
            if old is not None and old["pid"] == new["pid"]:
                self.rates[name] = (_num_calls(new) - _num_calls(old)) / max(now - self._taken_at[name], 1e-3)
            self.stats[name] = new
            self._taken_at[name] = now
        victim = self.stats.get(_VICTIM)
        if victim and self.killed_at and not self.back_at and victim["pid"] != self.killed_pid and _num_calls(victim):
            self.back_at, self.num_calls_at_back = now, self.num_calls


def _num_calls(stats: dict[str, Any]) -> int:
    """Calls a player made, or an oracle answered."""
    made = stats.get("num_calls")
    return int(stats["batches"].get("score", (0, 0))[1] if made is None else made)


# ---- what is shown


class _Table:
    """A live table in a terminal."""

    def __init__(self, console: Console) -> None:
        self._live = live.Live(console=console, auto_refresh=False)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_exc: object) -> None:
        self._live.stop()

    def show(self, seen: Seen, records: list[supervisor.WorkerRecord]) -> None:
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("worker")
        table.add_column("status")
        for column in ("process", "restarts", "calls/s", "p50"):
            table.add_column(column, justify="right")
        for record in records:
            table.add_row(*self._row(seen, record))
        self._live.update(table, refresh=True)

    def _row(self, seen: Seen, record: supervisor.WorkerRecord) -> list[text.Text]:
        is_up = record.status is supervisor.Phase.RUNNING
        p50_s = seen.stats.get(record.name, {}).get("p50_s")
        rate = seen.rates.get(record.name)
        return [
            text.Text(record.name),
            text.Text(record.status, style="green" if is_up else "bold red"),
            text.Text(str(record.pid or "")),
            text.Text(str(record.restarts), style="yellow" if record.restarts else ""),
            text.Text("" if rate is None else f"{rate:,.0f}"),
            text.Text("" if p50_s is None else f"{p50_s * 1e3:.2f} ms"),
        ]


class _Lines:
    """A line each second, and whenever somebody goes down or comes up, where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0
        self._down: list[str] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *_exc: object) -> None: ...

    def show(self, seen: Seen, records: list[supervisor.WorkerRecord]) -> None:
        now = time.monotonic() - seen.began
        down = [record.name for record in records if record.status is not supervisor.Phase.RUNNING]
        if now < self._next and down == self._down:
            return
        self._next, self._down = now + 1.0, down
        rate = sum(rate for name, rate in seen.rates.items() if name.startswith("player"))
        state = f"{', '.join(down)} down" if down else "all up"
        self._console.print(f"{now:5.1f} s   {rate:8,.0f} calls/s   p50 {seen.p50_s() * 1e3:.2f} ms   {state}")


def _sum_up(console: Console, seen: Seen) -> int:
    seconds = time.monotonic() - seen.began
    batches = [stats["batches"]["score"] for stats in seen.stats.values() if "score" in stats["batches"]]
    per_run = sum(calls for _, calls in batches) / max(1, sum(runs for runs, _ in batches))
    console.print(
        f"\n{seen.num_calls:,} calls answered in {seconds:.1f} s, p50 {seen.p50_s() * 1e3:.2f} ms; "
        f"batched: {per_run:.1f} callers for each run of the method."
    )
    problems = []
    if seen.killed_at is None or seen.noticed_at is None:
        problems.append(f"{_VICTIM} was not killed, or nobody noticed")
    elif seen.back_at is None:
        problems.append(f"{_VICTIM} did not come back")
    else:
        went_on = seen.num_calls_at_back - seen.num_calls_at_kill
        console.print(
            f"{_VICTIM} was killed -9 as process {seen.killed_pid}, noticed after "
            f"{(seen.noticed_at - seen.killed_at) * 1e3:.0f} ms, started again after a back-off of {_BACKOFF_S:g} s, "
            f"and answered calls {seen.back_at - seen.killed_at:.1f} s after the kill."
        )
        console.print(
            f"While it was down, the other two answered {went_on:,} calls; the longest wait of any player was "
            f"{seen.most('longest_s') * 1e3:.0f} ms. Calls asked again, because their replica died: "
            f"{seen.total('num_asked_again'):.0f}."
        )
        if went_on <= 0:
            problems.append("no call was answered while it was dead")
        if seen.num_calls <= seen.num_calls_at_back:
            problems.append("no call was answered after it came back")
    for problem in problems:
        console.print(f"[bold red]Not as it should be:[/bold red] {problem}.")
    return 1 if problems else 0
