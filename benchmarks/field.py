"""The field of a benchmark of calls: who competes in which row, slice by slice, and what came out.

Standard library only, like `harness`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from harness import Child, Stage

ANSWER_S = 30.0


class Row(NamedTuple):
    """What is measured: a nest of `size` bytes, echoed for `callers` callers at once."""

    name: str
    size: int
    callers: int


@dataclass(frozen=True)
class Entry:
    """An application to compete. Entries that name the same client share its process."""

    name: str
    tags: str
    rows: list[Row]
    python: str
    script: str
    client: str
    server: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    grace_s: float = 0.0


class Contestant(NamedTuple):
    """A connection, or one for each of many callers, inside a client's process."""

    name: str
    tags: frozenset[str]
    rows: list[Row]
    client: Child
    server: Child | None

    def slice(self, row: Row, seconds: float, *, label: str | None = None) -> float:
        """Round trips per second. Latencies are kept under the label; without one, nothing is."""
        self.begin(row, seconds, label=label)
        return self.end(seconds)

    def begin(self, row: Row, seconds: float, *, label: str | None = None) -> None:
        self.client.tell({"do": "slice", "name": self.name, "label": label, "size": row.size, "seconds": seconds})

    def end(self, seconds: float) -> float:
        answer = self.client.answer(timeout_s=seconds + ANSWER_S)
        return answer["count"] / answer["elapsed"]

    def latencies(self) -> dict[str, dict[str, float]]:
        """p50 and p99 in µs by label, over all slices kept under it."""
        return self.client.ask({"do": "latencies", "name": self.name}, timeout_s=ANSWER_S)


class Field:
    """Every contestant and every rate measured so far."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.contestants: list[Contestant] = []
        self._rates: dict[tuple[str, str], list[float]] = {}

    def enter(self, entries: list[Entry]) -> list[Contestant]:
        """Starts their servers and clients side by side, then connects one after the other."""
        servers, clients = {}, {}
        for entry in entries:
            if entry.server is not None:
                name = f"{entry.name} server"
                servers[entry.name] = self.stage.begin(name, entry.python, entry.script, "server", *entry.server)
            if entry.client not in clients:
                name, grace_s = f"{entry.client} client", entry.grace_s
                clients[entry.client] = self.stage.begin(name, entry.python, entry.script, "client", grace_s=grace_s)
        self.stage.ready([*servers.values(), *clients.values()])
        entered = []
        for entry in entries:
            server, client = servers.get(entry.name), clients[entry.client]
            order = {"do": "open", "name": entry.name, "callers": entry.rows[0].callers, **entry.options}
            if server is not None:
                order["address"] = server.hello["address"]
            client.ask(order, timeout_s=ANSWER_S)
            entered.append(Contestant(entry.name, frozenset(entry.tags.split()), entry.rows, client, server))
        self.contestants += entered
        return entered

    def compete(self, contestants: list[Contestant], *, rounds: int, seconds: float, progress: Progress) -> None:
        """Round after round, row after row, everyone takes a slice; each round another contestant begins."""
        rows = list(dict.fromkeys(row for c in contestants for row in c.rows))
        plan = [(row, [c for c in contestants if row in c.rows]) for row in rows]
        for row, those in plan:
            for c in those:
                progress.say(f"warm-up  {row.name:9} {c.name}")
                c.slice(row, min(seconds, 0.1))
        for turn in range(rounds):
            for row, those in plan:
                first = turn % len(those)
                for c in [*those[first:], *those[:first]]:
                    progress.say(f"round {turn + 1}/{rounds}  {row.name:9} {c.name}")
                    rate = c.slice(row, seconds, label=row.name)
                    self._rates.setdefault((c.name, row.name), []).append(rate)

    def rate(self, name: str, row: str) -> float:
        return median(self._rates[name, row])

    def best(self, tags: str, row: str) -> Contestant | None:
        """The fastest in a row of those that have all the tags."""
        found = [c for c in self.contestants if c.tags.issuperset(tags.split()) and (c.name, row) in self._rates]
        return max(found, key=lambda c: self.rate(c.name, row), default=None)

    def medians(self) -> dict[str, dict[str, dict[str, float]]]:
        """By contestant and row: the median rate, p50 and p99 over all slices, the spread of the rounds."""
        return {c.name: self._metrics(c) for c in self.contestants}

    def _metrics(self, c: Contestant) -> dict[str, dict[str, float]]:
        latencies, metrics = c.latencies(), {}
        for row in c.rows:
            rates = self._rates[c.name, row.name]
            spread = {"slowest_round": round(min(rates), 1), "fastest_round": round(max(rates), 1)}
            metrics[row.name] = {"rate": round(median(rates), 1), **latencies[row.name], **spread}
        return metrics


class Progress:
    """Steps as lines on stderr; in a terminal, what happens now in a line that is written over."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._live = sys.stderr.isatty()

    def step(self, what: str) -> None:
        self.say("")
        print(f"{self._name}: {what}", file=sys.stderr, flush=True)

    def say(self, what: str) -> None:
        if self._live:
            sys.stderr.write(f"\r\033[K{what}")
            sys.stderr.flush()
