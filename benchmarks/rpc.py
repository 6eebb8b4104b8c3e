"""Ludus's RPC against hand-written pyzmq, grpcio and a Ray actor call: nests echoed between two processes.

    python benchmarks/rpc.py            a table for people
    python benchmarks/rpc.py --json     the same, then one JSON object on the last line (DESIGN §9)

Every contestant takes a short slice in every round; medians over the rounds are compared, and the peer of a
ratio is the best of its variants. This script needs only the standard library: Ludus runs in .venv, its peers
in .venv-peers. What each row means is in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from typing import Any, NamedTuple

import cpu_use
from field import Entry, Field, Progress, Row
from harness import ROOT, Stage, conclude, make_environments

FAMILIES = ["ludus", "pyzmq", "grpc", "ray"]
NUM_CALLERS = 32
X = f" x{NUM_CALLERS}"

ONE_CALLER = [Row("64B", 64, 1), Row("28KB", 84 * 84 * 4, 1), Row("1MB", 1 << 20, 1)]
MANY_CALLERS = [Row(f"{row.name}{X}", row.size, NUM_CALLERS) for row in ONE_CALLER[:2]]
PING_PONG = ONE_CALLER[0]


class Ratio(NamedTuple):
    """Ours ÷ theirs in round trips per second. A side is the best contestant that has all of its tags."""

    name: str
    row: str
    ours: str
    theirs: str
    bar: float | None = None


RATIOS = [
    Ratio("rpc_64B_vs_pyzmq", "64B", "ludus local", "pyzmq pickle5", 3.5),
    Ratio("rpc_28KB_vs_pyzmq", "28KB", "ludus local", "pyzmq pickle5", 3.0),
    Ratio("rpc_1MB_vs_pyzmq", "1MB", "ludus local", "pyzmq pickle5", 2.0),
    Ratio("rpc_32callers_vs_pyzmq", "64B x32", "ludus local", "pyzmq pickle5", 1.2),
    Ratio("rpc_tcp_64B_vs_pyzmq", "64B", "ludus tcp", "pyzmq tcp pickle5", 0.8),
    Ratio("rpc_64B_vs_grpc", "64B", "ludus local", "grpc", 8.0),
    Ratio("rpc_64B_vs_ray", "64B", "ludus beside-ray", "ray", 12.0),
    # Without a bar: pyzmq without out-of-band buffers (faster for small nests), and 28 KB for many callers.
    Ratio("rpc_64B_vs_pyzmq_inline", "64B", "ludus local", "pyzmq inline"),
    Ratio("rpc_28KB_vs_pyzmq_inline", "28KB", "ludus local", "pyzmq inline"),
    Ratio("rpc_32callers_vs_pyzmq_inline", "64B x32", "ludus local", "pyzmq inline"),
    Ratio("rpc_tcp_64B_vs_pyzmq_inline", "64B", "ludus tcp", "pyzmq tcp inline"),
    Ratio("rpc_32callers_28KB_vs_pyzmq", "28KB x32", "ludus local", "pyzmq pickle5"),
]


def ludus_entries(python: str) -> list[Entry]:
    found = []
    for place, transport in (("local", "unix"), ("tcp", "zmq")):
        for rows, x in ((ONE_CALLER, ""), (MANY_CALLERS, X)):
            found.append(ludus_entry(python, f"ludus {transport}{x}", f"ludus {place}", rows, transport))
    return found


def ludus_entry(python: str, name: str, tags: str, rows: list[Row], transport: str) -> Entry:
    options = {"transport": transport}
    return Entry(name, tags, rows, python, "contestants/over_ludus.py", name, server=[transport], options=options)


def pyzmq_entries(python: str) -> list[Entry]:
    found = []

    def add(wire: str, pattern: str, encoding: str, rows: list[Row], x: str) -> None:
        kind = "inline" if encoding == "inline" else "pickle5"
        name, options = f"pyzmq {wire} {pattern} {encoding}{x}", {"pattern": pattern, "encoding": encoding}
        tags, server, client = f"pyzmq {wire} {kind}", [pattern, wire, encoding], f"pyzmq{x}"
        script = "contestants/over_pyzmq.py"
        found.append(Entry(name, tags, rows, python, script, client, server=server, options=options))

    for wire in ("ipc", "tcp"):
        for pattern in ("reqrep", "router"):
            add(wire, pattern, "buffers", ONE_CALLER, "")
            add(wire, pattern, "inline", ONE_CALLER[:2], "")  # 1 MB pickled into one frame is no contest
        for encoding in ("buffers", "copied", "inline"):
            add(wire, "drain", encoding, MANY_CALLERS, X)
    return found


def grpc_entries(python: str) -> list[Entry]:
    script = "contestants/over_grpc.py"
    return [
        Entry(f"grpc {wire}{x}", "grpc", rows, python, script, f"grpc{x}", server=[wire])
        for wire in ("tcp", "unix")
        for rows, x in ((ONE_CALLER, ""), (MANY_CALLERS, X))
    ]


def ray_entries(python: str) -> list[Entry]:
    script = "contestants/over_ray.py"
    return [
        Entry(f"ray{x}", "ray", rows, python, script, "ray", grace_s=20.0)
        for rows, x in ((ONE_CALLER, ""), (MANY_CALLERS, X))
    ]


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """All phases; the result is the JSON object of DESIGN §9."""
    progress.step("setting up")
    choose_pythons(args)
    with Stage() as stage:
        field = Field(stage)
        cpu = run_main(args, field, progress)
        if "ray" in args.only:
            run_ray(args, field, progress, cpu)
        progress.step("done")
        ratios, best_peers = compare(field)
        medians: dict[str, Any] = {**field.medians(), "cpu": cpu, "best_peers": best_peers}
        return {"ratios": ratios, "medians": medians, "versions": versions(stage)}


def run_main(args: argparse.Namespace, field: Field, progress: Progress) -> dict[str, Any]:
    """Everyone but Ray. Returns what was learnt about CPU use."""
    entries = ludus_entries(args.ludus_python) if "ludus" in args.only else []
    entries += pyzmq_entries(args.peers_python) if "pyzmq" in args.only else []
    entries += grpc_entries(args.peers_python) if "grpc" in args.only else []
    if not entries:
        return {}
    progress.step(f"starting {len(entries)} contestants")
    contestants = field.enter(entries)
    progress.step(f"{args.rounds} rounds of slices of {args.seconds} s")
    field.compete(contestants, rounds=args.rounds, seconds=args.seconds, progress=progress)
    if args.no_cpu or not sys.platform.startswith("linux"):
        return {}
    return measure_cpu(args, field, progress)


def run_ray(args: argparse.Namespace, field: Field, progress: Progress, cpu: dict[str, Any]) -> None:
    """Last, since Ray's idle cluster keeps using the cores; Ludus runs once more beside it for the ratio."""
    progress.step("starting Ray, and Ludus once more beside it")
    entries = ray_entries(args.peers_python)
    if "ludus" in args.only:
        for rows, x in ((ONE_CALLER, ""), (MANY_CALLERS, X)):
            name, tags = f"ludus beside ray{x}", "ludus beside-ray"
            entries.append(ludus_entry(args.ludus_python, name, tags, rows, "unix"))
    contestants = field.enter(entries)
    field.compete(contestants, rounds=args.rounds, seconds=args.seconds, progress=progress)
    if cpu:
        cpu["idle_cores"].update(cpu_use.of_idle({"ray": contestants[0]}, seconds=idle_s(args)))


def measure_cpu(args: argparse.Namespace, field: Field, progress: Progress) -> dict[str, Any]:
    row = PING_PONG.name
    wanted = {"ludus": "ludus local", "pyzmq": "pyzmq pickle5", "ludus tcp": "ludus tcp", "grpc": "grpc"}
    found = {name: c for name, c in ((name, field.best(tags, row)) for name, tags in wanted.items()) if c}
    rivals = {name: c for name, c in found.items() if name in ("ludus", "pyzmq")}
    pace = {"seconds": args.seconds, "rounds": args.rounds}
    progress.step("CPU use: idle connections")
    idle = cpu_use.of_idle(found, seconds=idle_s(args))
    progress.step("CPU use: a ping-pong alone, and beside two processes that compute")
    calls = {name: cpu_use.of_calls(c, PING_PONG, **pace) for name, c in found.items()}
    python = args.ludus_python if "ludus" in args.only else args.peers_python
    beside = cpu_use.beside_burners(field.stage, rivals, PING_PONG, python=python, progress=progress, **pace)
    return {"idle_cores": idle, "ping_pong": calls, "two_burners": beside}


def idle_s(args: argparse.Namespace) -> float:
    return 1.0 if args.quick else 5.0


def compare(field: Field) -> tuple[dict[str, float], dict[str, str]]:
    """The ratios that this run can tell, and who was the best peer in each."""
    ratios, best_peers = {}, {}
    for ratio in RATIOS:
        ours, theirs = field.best(ratio.ours, ratio.row), field.best(ratio.theirs, ratio.row)
        if ours and theirs:
            ratios[ratio.name] = round(field.rate(ours.name, ratio.row) / field.rate(theirs.name, ratio.row), 3)
            best_peers[ratio.name] = theirs.name
    return ratios, best_peers


def versions(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = {"system": platform.platform(), "cpu": cpu_name(), "cores": os.cpu_count()}
    for child in stage.children:
        side = "ludus" if child.name.startswith("ludus") else "peers"
        if not child.name.startswith("burner"):
            found.setdefault(side, {}).update(child.hello["versions"])
    return found


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def print_result(result: dict[str, Any]) -> None:
    medians = dict(result["medians"])
    cpu, best_peers = medians.pop("cpu"), medians.pop("best_peers")
    for row in [*ONE_CALLER, *MANY_CALLERS]:
        found = {name: rows[row.name] for name, rows in medians.items() if row.name in rows}
        print_row(row.name, found)
    if cpu:
        print_cpu(cpu)
    print(f"\n{'ratio (higher is better)':36}{'ours ÷ theirs':>14}{'bar':>6}  best peer")
    for ratio in RATIOS:
        if ratio.name in result["ratios"]:
            value, bar = result["ratios"][ratio.name], "" if ratio.bar is None else ratio.bar
            below = "  BELOW THE BAR" if ratio.bar is not None and value < ratio.bar else ""
            print(f"  {ratio.name:34}{value:14.2f}{bar:>6}  {best_peers[ratio.name]}{below}")


def print_row(name: str, found: dict[str, dict[str, float]]) -> None:
    print(f"\n{name:36}{'round trips/s':>14}{'p50 µs':>11}{'p99 µs':>11}   slowest–fastest round")
    for who, f in sorted(found.items(), key=lambda item: -item[1]["rate"]):
        span = f"{f['slowest_round']:,.0f}–{f['fastest_round']:,.0f}"
        print(f"  {who:34}{f['rate']:14,.0f}{f['p50_us']:11,.1f}{f['p99_us']:11,.1f}   {span}")


def print_cpu(cpu: dict[str, Any]) -> None:
    print(f"\n{'CPU of an idle connection':36}{'server, cores':>14}{'client, cores':>15}")
    for who, ends in cpu["idle_cores"].items():
        server = f"{ends['server']:.5f}" if "server" in ends else "–"
        print(f"  {who:34}{server:>14}{ends['client']:15.5f}")
    print(f"\n{'CPU of a 64 B ping-pong, both ends':36}{'cores':>14}{'µs per call':>15}")
    for who, f in cpu["ping_pong"].items():
        print(f"  {who:34}{f['cores']:14.3f}{f['cpu_us_per_call']:15.1f}")
    head = f"{'burners fall by':>16}{'round trips/s':>15}{'p50 µs':>11}{'p99 µs':>11}"
    print(f"\n{'64 B beside two burners':36}{head}")
    for who, f in cpu["two_burners"].items():
        if "rate" in f:
            fall = f"{100 * f['burners_fall']:.1f} %"
            print(f"  {who:34}{fall:>16}{f['rate']:15,.0f}{f['p50_us']:11,.1f}{f['p99_us']:11,.1f}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--json", action="store_true", help="one JSON object on the last line of stdout")
    add("--seconds", type=float, default=0.5, help="length of a slice (default: %(default)s)")
    add("--rounds", type=int, default=7, help="slices of each contestant in each row (default: %(default)s)")
    add("--quick", action="store_true", help="2 rounds of 0.1 s: shows that it works, not how fast")
    add(
        "--only",
        nargs="+",
        choices=FAMILIES,
        default=FAMILIES,
        metavar="WHO",
        help=f"some of {', '.join(FAMILIES)}",
    )
    add("--no-cpu", action="store_true", help="leave out the section on CPU use")
    add("--ludus-python", metavar="PATH", help="instead of .venv/bin/python, which is then not set up")
    add("--peers-python", metavar="PATH", help="instead of .venv-peers/bin/python, which is then not set up")
    args = parser.parse_args(argv)
    if args.quick:
        args.rounds, args.seconds = 2, 0.1
    if args.rounds < 1 or args.seconds <= 0:
        parser.error("--rounds must be at least 1 and --seconds more than 0")
    return args


def choose_pythons(args: argparse.Namespace) -> None:
    """Sets up the virtual environments that this run needs, except where it was given a Python."""
    targets = []
    if args.ludus_python is None:
        args.ludus_python = str(ROOT / ".venv" / "bin" / "python")
        targets += ["setup"] if "ludus" in args.only else []
    if args.peers_python is None:
        args.peers_python = str(ROOT / ".venv-peers" / "bin" / "python")
        targets += ["peers"] if set(args.only) != {"ludus"} else []
    if targets:
        make_environments(*targets)


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return conclude("rpc", lambda: run(args, Progress("rpc")), print_result, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
