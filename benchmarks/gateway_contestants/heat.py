"""A heat: contestants that take turns, slice by slice, and what came out. Standard library only, like `harness`."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from field import Progress
from harness import BenchmarkError, Child
from loadgen.generator import LoadGenerator

HOST = "127.0.0.1"
NUM_SESSIONS = 64
LOAD = 0.8  # of the rate that a closed loop reached just before: where latencies are taken
REST_S = 0.1  # between slices


@dataclass
class Contestant:
    """Someone who is measured in slices. `failure` ends its part in the heat, and nobody else's."""

    row: str
    name: str
    variant: str
    child: Child
    slices: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""

    @property
    def title(self) -> str:
        return " ".join(part for part in (self.row, self.name, self.variant) if part)

    @property
    def rate(self) -> float:
        return self.median("rate")

    def median(self, key: str) -> float:
        return median(s[key] for s in self.slices)

    def measure(self, seconds: float) -> dict[str, Any]:
        """One slice: at least its `rate`."""
        raise NotImplementedError

    def metrics(self) -> dict[str, Any]:
        """The median of each metric, and the rates of the rounds in their order."""
        keys = [key for key, value in self.slices[0].items() if isinstance(value, (int, float))]
        found: dict[str, Any] = {key: round(self.median(key), 3) for key in keys}
        found["rounds"] = [round(s["rate"], 1) for s in self.slices]
        return found


@dataclass
class Served(Contestant):
    """A server under the load generator. `open_loop`: a second slice at a fixed rate, for latencies."""

    generator: LoadGenerator | None = None
    path: str = "/step"
    body_bytes: int = 1024
    body_file: Path | None = None
    open_loop: bool = False

    def measure(self, seconds: float) -> dict[str, Any]:
        closed = self._load(seconds)
        found = {"rate": closed["requests_per_second"], **self._shares(closed)}
        found.update(closed_p50_ms=closed["p50_us"] / 1e3, closed_p99_ms=closed["p99_us"] / 1e3)
        if self.open_loop:
            opened = self._load(seconds, rate=LOAD * found["rate"])
            names = {"p50_ms": "wait_p50_us", "p99_ms": "wait_p99_us", "due_p50_ms": "p50_us", "due_p99_ms": "p99_us"}
            found.update({name: opened[key] / 1e3 for name, key in names.items()})
        return found

    def _load(self, seconds: float, *, rate: float | None = None) -> dict[str, Any]:
        assert self.generator is not None
        expected = {"expect_echo": True} if self.row == "echo" else {"expect_bytes": 1}
        before, begin = self.child.cpu_s(), time.monotonic()
        found = self.generator.run(
            HOST,
            self.child.hello["port"],
            seconds=seconds,
            connections=NUM_SESSIONS,
            path=self.path,
            body_bytes=self.body_bytes,
            body_file=self.body_file,
            rate=rate,
            **expected,
        )
        found["server_cores"] = (self.child.cpu_s() - before) / (time.monotonic() - begin)
        trouble = {key: found[key] for key in ("errors", "wrong", "disconnects", "unanswered") if found[key]}
        if trouble or not found["requests"]:
            raise BenchmarkError(f"{self.title}: {found['requests']} answers, {trouble}, {found['statuses']}")
        return found

    @staticmethod
    def _shares(found: dict[str, Any]) -> dict[str, float]:
        """How many cores the load generator and the server kept busy."""
        return {"loadgen_cores": found["cpu_seconds"] / found["seconds"], "server_cores": found["server_cores"]}

    def check_actions(self, observations: bytes, actions: list[int]) -> None:
        """Every observation must get the action that belongs to it."""
        connection = http.client.HTTPConnection(HOST, self.child.hello["port"], timeout=30.0)
        session = f"check-{time.monotonic_ns()}"

        def step(kind: str, number: int, body: bytes) -> bytes:
            headers = {"session": session, "step_kind": kind, "step": str(number)}
            connection.request("POST", self.path, body=body, headers=headers)
            answer = connection.getresponse()
            data = answer.read()
            if answer.status != 200:
                raise BenchmarkError(f"{self.title} answered {answer.status} to a {kind}: {data[:300]!r}")
            return data

        size = self.body_bytes
        step("start", 0, b"")
        bodies = [observations[at : at + size] for at in range(0, len(observations), size)]
        got = [list(step("tick", number, body)) for number, body in enumerate(bodies, 1)]
        step("end", len(bodies) + 1, b"")
        connection.close()
        if got != [[action] for action in actions]:
            raise BenchmarkError(f"{self.title} acts otherwise than the model: {got}, not {actions}")


@dataclass
class Raw(Contestant):
    """Batches that are ready, without a server. The first slice tries all settings, the later ones the best few."""

    settings: list[dict[str, Any]] = field(default_factory=list)
    num_best: int = 3
    differences: dict[str, float] = field(default_factory=dict)

    def measure(self, seconds: float) -> dict[str, Any]:
        if len(self.settings) > self.num_best:
            tried = [(self._rate(setting, min(0.3, seconds)), setting) for setting in self.settings]
            best = sorted(tried, key=lambda item: -item[0])[: self.num_best]
            self.settings = [setting for _, setting in best]
        name, each = "{backend}, batch {batch}, {threads} threads", seconds / self.num_best
        rates = {name.format(**setting): self._rate(setting, each) for setting in self.settings}
        return {"rate": max(rates.values()), "settings": rates}

    @property
    def medians(self) -> dict[str, float]:
        """By setting."""
        return {name: median(s["settings"][name] for s in self.slices) for name in self.slices[0]["settings"]}

    @property
    def rate(self) -> float:
        return max(self.medians.values())

    @property
    def best_setting(self) -> str:
        return max(self.medians, key=lambda name: self.medians[name])

    def metrics(self) -> dict[str, Any]:
        return {
            "rate": round(self.rate, 1),
            "rounds": [round(s["settings"][self.best_setting], 1) for s in self.slices],
            "settings": {name: round(rate, 1) for name, rate in self.medians.items()},
            "differences": self.differences,
        }

    def _rate(self, setting: dict[str, Any], seconds: float) -> float:
        answer = self.child.ask({**setting, "seconds": seconds}, timeout_s=seconds + 120.0)
        worst = self.differences.get(setting["backend"], 0.0)
        self.differences[setting["backend"]] = max(worst, answer["difference"])
        return float(answer["rate"])


def run_heat(name: str, contestants: list[Any], *, rounds: int, seconds: float, progress: Progress) -> None:
    """A warm-up, then rounds in which everyone takes a slice; each round another one begins."""
    for c in contestants:
        _slice(c, min(1.0, seconds), progress, f"{name}: warm-up", keep=False)
    for turn in range(rounds):
        first = turn % max(1, len(contestants))
        for c in [*contestants[first:], *contestants[:first]]:
            _slice(c, seconds, progress, f"{name}: round {turn + 1}/{rounds}", keep=True)


def _slice(c: Contestant, seconds: float, progress: Progress, when: str, *, keep: bool) -> None:
    if c.failure:
        return
    progress.say(f"{when}  {c.title}")
    try:
        found = c.measure(seconds)
    except BenchmarkError as e:
        c.failure = str(e)
        progress.step(f"{when}  {c.title}: {c.failure}")
        return
    if keep:
        c.slices.append(found)
    time.sleep(REST_S)
