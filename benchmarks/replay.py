"""Ludus's replay tables against cpprb, TorchRL and Tianshou in one process, and against dm-reverb across processes.

    python benchmarks/replay.py            a table for people
    python benchmarks/replay.py --json     the same, then one JSON object on the last line (DESIGN §9)
    python benchmarks/replay.py --only ludus cpprb --sizes small --rounds 7

A heat is one size of items and one kind of sampling. In each of its rounds every contestant runs one slice of inserts
and one of samples while the others wait; medians over the rounds are compared. This script needs only the standard
library: Ludus runs in .venv, its peers in .venv-peers-replay and .venv-peers-reverb. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from field import Progress
from harness import ROOT, BenchmarkError, Child, Stage, conclude, make_environments

SIZES = ["small", "28KB"]
KINDS = ["uniform", "prioritised"]
PLACES = ["process", "service"]
OPERATIONS = ["insert", "sample"]
NUM_CLIENTS = [1, 2, 4]
FILL_S = 180.0
ANSWER_S = 60.0
LEAD_S = 0.3  # of every slice: everyone works, nothing is counted


class Library(NamedTuple):
    """A contestant: its virtual environment, its script, and how its process is asked for by place."""

    venv: str
    script: str
    arguments: dict[str, list[str]]


LIBRARIES = {
    "ludus": Library(".venv", "with_ludus.py", {"process": ["process"], "service": ["client"]}),
    "ludus-fresh": Library(".venv", "with_ludus.py", {"process": ["process-fresh"]}),
    "cpprb": Library(".venv-peers-replay", "with_cpprb.py", {"process": []}),
    "torchrl": Library(".venv-peers-replay", "with_torchrl.py", {"process": []}),
    "tianshou": Library(".venv-peers-replay", "with_tianshou.py", {"process": []}),
    "reverb": Library(".venv-peers-reverb", "with_reverb.py", {"service": ["client"]}),
}


class Row(NamedTuple):
    """One number of each contestant: items per second, summed over the clients (0: in the caller's process)."""

    size: str
    kind: str
    num_clients: int
    operation: str

    @property
    def name(self) -> str:
        return " ".join([self.where, self.size, self.kind, self.operation])

    @property
    def where(self) -> str:
        if self.num_clients == 0:
            return "process"
        return f"{self.num_clients} client{'s' if self.num_clients > 1 else ''}"


class Ratio(NamedTuple):
    """Ours ÷ theirs, items per second. A bar of None: shown, not asked for."""

    name: str
    row: Row
    peer: str
    bar: float | None
    ours: str = "ludus"


def ratios_of(peer: str, num_clients: int) -> list[Ratio]:
    """insert_…, sample_… with a uniform table; prioritised_… (a sample with its update) with a prioritised one."""
    found = []
    what = [("insert", "uniform", "insert"), ("sample", "uniform", "sample"), ("prioritised", "prioritised", "sample"),
            ("prioritised_insert", "prioritised", "insert")]  # fmt: skip
    for size in SIZES:
        for name, kind, operation in what:
            bar = None
            if peer == "cpprb" and name != "prioritised_insert":
                bar = 1.0
            elif peer == "reverb" and num_clients == 1 and kind == "uniform":
                bar = 10.0 if size == "small" else 8.0
            full = f"service_{name}_vs_{peer}" if num_clients else f"{name}_vs_{peer}"
            full += "_28kb" if size == "28KB" else ""
            full += f"_{num_clients}" if num_clients > 1 else ""
            row = Row(size, kind, num_clients, operation)
            found.append(Ratio(full, row, peer, bar))
            if peer == "cpprb" and operation == "sample":
                found.append(Ratio(f"{full}_fresh", row, peer, None, ours="ludus-fresh"))
    return found


RATIOS = [
    *(ratio for peer in ("cpprb", "torchrl", "tianshou") for ratio in ratios_of(peer, 0)),
    *(ratio for num_clients in NUM_CLIENTS for ratio in ratios_of("reverb", num_clients)),
]


@dataclass
class Entrant:
    """A contestant within a heat: its client processes and, across processes, its server."""

    name: str
    clients: list[Child]
    server: Child | None = None

    @property
    def children(self) -> list[Child]:
        return [*([self.server] if self.server else []), *self.clients]

    def open(self, size: str, kind: str) -> None:
        """Connects the clients, fills the table and looks whether samples are intact."""
        address = {"address": self.server.hello["address"]} if self.server else {}
        for client in self.clients:
            client.ask({"do": "open", "size": size, "kind": kind, **address}, timeout_s=ANSWER_S)
        self.clients[0].ask({"do": "fill"}, timeout_s=FILL_S)
        for client in self.clients:
            client.ask({"do": "check"}, timeout_s=ANSWER_S)

    def slice(self, row: Row, seconds: float) -> float:
        """Items per second of as many clients as the row has, all at the same time."""
        working = self.clients[: max(1, row.num_clients)]
        begin_at = time.monotonic() + LEAD_S  # the same clock in every process of a host
        for client in working:
            client.tell({"do": "slice", "what": row.operation, "begin_at": begin_at, "seconds": seconds})
        answers = [client.answer(timeout_s=seconds + ANSWER_S) for client in working]
        return sum(answer["items"] / answer["seconds"] for answer in answers)


@dataclass
class Contest:
    """All heats, and what came out of them."""

    stage: Stage
    args: argparse.Namespace
    progress: Progress
    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # by row and contestant, by round
    failures: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)

    def run(self) -> None:
        for size in self.args.sizes:
            for kind in self.args.kinds:
                for place in self.args.places:
                    self._heat(place, size, kind)

    def rate(self, row: Row, name: str) -> float | None:
        runs = self.rates.get(row.name, {}).get(name)
        return median(runs) if runs else None

    def _heat(self, place: str, size: str, kind: str) -> None:
        """A contestant that fails is out of the heat; the others go on."""
        title = f"{place} {size} {kind}"
        entrants: list[Entrant] = []
        started: list[Child] = []
        try:
            for name in self.args.only:
                if place in LIBRARIES[name].arguments:
                    self.progress.say(f"{title}: {name} starts and fills its table")
                    entrant = self._enter(name, place, size, kind, started)
                    entrants += [entrant] if entrant else []
            for turn in range(self.args.rounds):
                for row in self._rows(place, size, kind):
                    if entrants:
                        first = turn % len(entrants)
                        for entrant in [*entrants[first:], *entrants[:first]]:
                            self.progress.say(f"{title}: round {turn + 1}, {row.name}, {entrant.name}")
                            if not self._slice(entrant, row, title):
                                entrants.remove(entrant)
        finally:
            for child in started:
                child.ask_to_stop()
            for child in started:
                child.stop()
                self.stage.children.remove(child)
        for row in self._rows(place, size, kind):
            found = [f"{name} {self.rate(row, name) or 0:,.0f}" for name in self.rates.get(row.name, {})]
            self.progress.step(f"{row.name}: {', '.join(found) or 'nobody'}")

    def _rows(self, place: str, size: str, kind: str) -> list[Row]:
        counts = self.args.clients if place == "service" else [0]
        return [Row(size, kind, num_clients, operation) for num_clients in counts for operation in OPERATIONS]

    def _enter(self, name: str, place: str, size: str, kind: str, started: list[Child]) -> Entrant | None:
        library = LIBRARIES[name]
        python, script = str(ROOT / library.venv / "bin" / "python"), f"replay_contestants/{library.script}"
        title = f"{name} {place} {size} {kind}"

        def begin(role: str, *arguments: str) -> Child:
            child = self.stage.begin(f"{title} {role}", python, script, *arguments)
            started.append(child)
            return child

        try:
            server = begin("server", "server", size, kind) if place == "service" else None
            num_clients = max(self.args.clients) if place == "service" else 1
            clients = [begin(f"client {i}", *library.arguments[place]) for i in range(num_clients)]
            entrant = Entrant(name, clients, server)
            self.stage.ready(entrant.children)
            self.versions.setdefault(name, {}).update(clients[0].hello["versions"])
            entrant.open(size, kind)
        except BenchmarkError as e:
            self._fail(title, e)
            return None
        return entrant

    def _slice(self, entrant: Entrant, row: Row, title: str) -> bool:
        try:
            rate = entrant.slice(row, self.args.seconds)
        except BenchmarkError as e:
            self._fail(f"{entrant.name} {title}", e)
            return False
        self.rates.setdefault(row.name, {}).setdefault(entrant.name, []).append(rate)
        return True

    def _fail(self, title: str, error: BenchmarkError) -> None:
        self.failures[title] = str(error)
        self.progress.step(f"{title} failed: {str(error).splitlines()[-1]}")


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """All heats; the result is the JSON object of DESIGN §9."""
    progress.step("setting up")
    targets = {LIBRARIES[name].venv for name in args.only if set(LIBRARIES[name].arguments) & set(args.places)}
    make_environments(*sorted("setup" if venv == ".venv" else f"{venv}/.ready" for venv in targets))
    with Stage() as stage:
        contest = Contest(stage, args, progress)
        contest.run()
    ratios = {}
    for ratio in RATIOS:
        ours, theirs = contest.rate(ratio.row, ratio.ours), contest.rate(ratio.row, ratio.peer)
        if ours and theirs:
            ratios[ratio.name] = round(ours / theirs, 3)
    return {
        "ratios": ratios,
        "medians": {
            row: {name: {"median": round(median(runs), 1), "runs": [round(x, 1) for x in runs]}
                  for name, runs in by_name.items()}
            for row, by_name in contest.rates.items()
        },
        "versions": {"system": platform.platform(), "cores": os.cpu_count(), **contest.versions},
        "failures": contest.failures,
    }  # fmt: skip


def print_result(result: dict[str, Any]) -> None:
    names = [name for name in LIBRARIES if any(name in row for row in result["medians"].values())]
    print(f"\n{'items/s (median, slowest-fastest round)':40}{''.join(f'{name:>34}' for name in names)}")
    for row, by_name in result["medians"].items():
        cells = [shown(by_name.get(name)) for name in names]
        print(f"  {row:38}{''.join(f'{cell:>34}' for cell in cells)}")
    for title, failure in result["failures"].items():
        print(f"\nFAILED  {title}: {failure}")
    print(f"\n{'ratio (higher is better)':48}{'':>8}{'bar':>6}")
    for ratio in RATIOS:
        value = result["ratios"].get(ratio.name)
        if value is not None:
            below = "  BELOW THE BAR" if ratio.bar is not None and value < ratio.bar else ""
            print(f"  {ratio.name:46}{value:8.2f}{'–' if ratio.bar is None else ratio.bar:>6}{below}")


def shown(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    return f"{cell['median']:,.0f} ({min(cell['runs']):,.0f}-{max(cell['runs']):,.0f})"


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--json", action="store_true", help="one JSON object on the last line of stdout")
    add("--rounds", type=int, default=5, help="slices of each contestant in each row (default: %(default)s)")
    add("--seconds", type=float, default=1.0, help="length of a slice (default: %(default)s)")
    add("--quick", action="store_true", help="one short round: shows that it works, not how fast")
    for option, choices, what in (
        ("--only", list(LIBRARIES), "contestants"),
        ("--sizes", SIZES, "sizes of items"),
        ("--kinds", KINDS, "kinds of sampling"),
        ("--places", PLACES, "in one process, across processes"),
    ):
        add(option, nargs="+", choices=choices, default=choices, help=f"{what} (default: all)")
    add("--clients", nargs="+", type=int, default=NUM_CLIENTS, help="processes that use a service (default: 1 2 4)")
    args = parser.parse_args(argv)
    if args.quick:
        args.rounds, args.seconds = 1, min(args.seconds, 0.2)
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    if args.seconds <= 0:
        parser.error("--seconds must be above 0")
    if any(number not in NUM_CLIENTS for number in args.clients):
        parser.error(f"--clients must be some of {', '.join(map(str, NUM_CLIENTS))}")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return conclude("replay", lambda: run(args, Progress("replay")), print_result, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
