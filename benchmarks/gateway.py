"""Ludus's gateway against bare asyncio, FastAPI, Granian, Ray Serve, and a model's own speed.

    python benchmarks/gateway.py            a table for people
    python benchmarks/gateway.py --json     the same, then one JSON object on the last line (DESIGN §9)

64 sessions, each on a keep-alive connection, send numbered ticks from a load generator in C++ (benchmarks/loadgen)
that is the same for everyone. Contestants take turns in every round; medians over the rounds are compared. This script
needs only the standard library: Ludus and bare asyncio run in .venv, the others in .venv-peers-gateway. What each row
means is in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path
from typing import Any, NamedTuple

from field import Progress
from gateway_contestants.heat import Contestant, Raw, Served, run_heat
from harness import ROOT, BenchmarkError, Child, Stage, conclude, make_environments
from loadgen.generator import LoadGenerator

GROUPS = ["echo", "cnn", "rayserve"]
LUDUS_PYTHON = str(ROOT / ".venv" / "bin" / "python")
PEERS_PYTHON = str(ROOT / ".venv-peers-gateway" / "bin" / "python")
OBSERVATION_BYTES = 4 * 84 * 84
START_S = 180.0
LUDUS_THREADS = (1, 2)
RAY_MODES = ["defaults", "throughput"]
RAW_SETTINGS = [
    {"backend": backend, "batch": batch, "threads": threads}
    for backend in ("onnx", "eager", "channels_last", "compile")
    for threads in (1, 2)
    for batch in (16, 32, 64)
    if backend != "compile" or batch != 32  # each of which takes seconds to compile
]


class Ratio(NamedTuple):
    """Ours ÷ theirs in answers a second, both from the same heat. Their best variant counts, of all heats."""

    name: str
    row: str
    peer: str
    bar: float | None = None
    variant: str = ""


RATIOS = [
    Ratio("echo_vs_asyncio", "echo", "asyncio", 0.5),
    Ratio("echo_vs_fastapi", "echo", "fastapi", 8.0),
    Ratio("echo_vs_granian", "echo", "granian", 1.0),
    Ratio("echo_vs_rayserve", "echo", "rayserve", 50.0),
    Ratio("cnn_vs_raw_forward", "cnn", "raw forward", 0.8),
    Ratio("cnn_vs_rayserve_batch", "cnn", "rayserve", 8.0),
    # Without a bar: the ceiling that looks at the session, and Ray Serve with its Python proxy.
    Ratio("echo_vs_asyncio_sessions", "echo", "asyncio", variant="sessions"),
    Ratio("echo_vs_rayserve_defaults", "echo", "rayserve", variant="defaults"),
    Ratio("cnn_vs_rayserve_batch_defaults", "cnn", "rayserve", variant="defaults"),
]
LATENCY, LATENCY_BAR = "echo_p50x5_over_p99", 1.0
LATENCY_FROM_DUE = "echo_p50x5_over_p99_from_due"  # without a bar: the machine's stalls are charged, too


class Benchmark:
    """The processes, the heats, and who took part in which."""

    def __init__(self, args: argparse.Namespace, stage: Stage, progress: Progress) -> None:
        self._args = args
        self._stage = stage
        self._progress = progress
        self._generator = LoadGenerator.build(stage.folder)
        self.heats: dict[str, list[Contestant]] = {}
        self.failures: dict[str, str] = {}
        self.versions: dict[str, Any] = {
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        }
        self._observations: Path | None = None
        self._actions: list[int] = []
        self._ludus: dict[str, Child] = {}

    def run(self) -> None:
        if "echo" in self._args.only:
            self._echo_heat()
        if "cnn" in self._args.only or "rayserve" in self._args.only:
            self._cnn_heat()
        if "rayserve" in self._args.only:
            for mode in RAY_MODES:
                self._ray_heat(mode)

    # -- heats --

    def _echo_heat(self) -> None:
        self._progress.step("echo: starting ludus, asyncio, fastapi, granian")
        latencies = {"open_loop": True}
        contestants = [
            self._served("echo", "ludus", "", self._start_ludus("echo"), **latencies),
            self._served("echo", "asyncio", "bare", self._start(True, "with_asyncio.py", "bare"), **latencies),
            self._served("echo", "asyncio", "sessions", self._start(True, "with_asyncio.py", "sessions")),
            self._served("echo", "fastapi", "", self._start(False, "with_fastapi.py")),
            *(self._served("echo", "granian", m, self._start(False, "with_granian.py", m)) for m in ("st", "mt")),
        ]
        self._run("echo", contestants)
        self._stop([c.child for c in contestants if c is not None and c.name != "ludus"])

    def _cnn_heat(self) -> None:
        """Without the group `cnn` only what the heats with Ray Serve need."""
        self._progress.step("cnn: starting the model, alone and behind ludus")
        raw = self._start(True, "raw_forward.py")
        if raw is None:
            raise BenchmarkError(self.failures["raw_forward.py"])
        self._observations, self._actions = Path(raw.hello["observations"]), raw.hello["actions"]
        contestants: list[Contestant | None] = [
            self._player("ludus", f"{n} threads", self._start_ludus("cnn", n)) for n in LUDUS_THREADS
        ]
        if "cnn" in self._args.only:
            contestants.append(Raw("cnn", "raw forward", "", raw, settings=list(RAW_SETTINGS)))
            self._run("cnn", contestants)
        self._stop([raw])

    def _ray_heat(self, mode: str) -> None:
        """Ludus once more beside it, since an idle Ray cluster keeps using the cores."""
        heat = f"rayserve {mode}"
        self._progress.step(f"{heat}: starting Ray")
        ray = self._start(False, "with_ray_serve.py", mode, grace_s=20.0)
        if ray is None:
            return
        contestants = [self._served("echo", "ludus", "", self._start_ludus("echo"))]
        best = self._best_threads()
        contestants.append(self._player("ludus", f"{best} threads", self._start_ludus("cnn", best)))
        for name, path in ray.hello["paths"].items():
            if name == "echo":
                contestants.append(self._served("echo", "rayserve", mode, ray, path=path))
            else:
                contestants.append(self._player("rayserve", f"{mode}, {name}", ray, path=path))
        self._run(heat, contestants, rounds=min(3, self._args.rounds))
        self._stop([ray])

    def _run(self, heat: str, contestants: list[Contestant | None], *, rounds: int | None = None) -> None:
        those = [c for c in contestants if c is not None]
        rounds = rounds or self._args.rounds
        self._progress.step(f"{heat}: {rounds} rounds of slices of {self._args.seconds} s")
        run_heat(heat, those, rounds=rounds, seconds=self._args.seconds, progress=self._progress)
        self.failures.update({f"{heat}: {c.title}": c.failure for c in those if c.failure})
        self.heats[heat] = [c for c in those if c.slices and not c.failure]

    def _best_threads(self) -> int:
        """Of Ludus's variants, the one that was best alone."""
        found = [c for c in self.heats.get("cnn", []) if c.name == "ludus"]
        best = max(found, key=lambda c: c.rate, default=None)
        return int(best.variant.split()[0]) if best else LUDUS_THREADS[-1]

    # -- contestants --

    def _served(self, row: str, name: str, variant: str, child: Child | None, **options: Any) -> Served | None:
        return child and Served(row, name, variant, child, generator=self._generator, **options)

    def _player(self, name: str, variant: str, child: Child | None, *, path: str = "/step") -> Served | None:
        """One with the model behind it, whose actions are checked first."""
        options = {"path": path, "body_bytes": OBSERVATION_BYTES, "body_file": self._observations}
        made = self._served("cnn", name, variant, child, **options)
        if made is None or self._observations is None:
            return None
        try:
            made.check_actions(self._observations.read_bytes(), self._actions)
        except (BenchmarkError, OSError) as e:
            self.failures[made.title] = f"{type(e).__name__}: {e}"
            return None
        return made

    # -- processes --

    def _start_ludus(self, what: str, threads: int | None = None) -> Child | None:
        """The same process in all heats."""
        arguments = [what] if threads is None else [what, str(threads)]
        name = " ".join(arguments)
        if name not in self._ludus:
            child = self._start(True, "with_ludus.py", *arguments, grace_s=10.0)
            if child is None:
                return None
            self._ludus[name] = child
        return self._ludus[name]

    def _start(self, is_ours: bool, script: str, *arguments: str, grace_s: float = 0.0) -> Child | None:
        """A process that is ready, or `None`: why not is among the failures."""
        name = " ".join([script, *arguments])
        python = LUDUS_PYTHON if is_ours else PEERS_PYTHON
        child = self._stage.begin(name, python, f"gateway_contestants/{script}", *arguments, grace_s=grace_s)
        try:
            child.hello = child.answer(timeout_s=START_S)
        except BenchmarkError as e:
            self.failures[name] = str(e)
            self._progress.step(f"{name} did not start: {e}")
            self._stop([child])
            return None
        self.versions.setdefault("ludus" if is_ours else "peers", {}).update(child.hello["versions"])
        if "backend" in child.hello:
            self.versions[f"backend of {name}"] = child.hello["backend"]
        return child

    def _stop(self, children: list[Child | None]) -> None:
        for child in children:
            if child is not None and child in self._stage.children:
                child.ask_to_stop()
                child.stop()
                self._stage.children.remove(child)


def compare(heats: dict[str, list[Contestant]]) -> tuple[dict[str, float], dict[str, str]]:
    """The ratios that this run can tell, and whom each was taken against."""
    ratios, best_peers = {}, {}
    for ratio in RATIOS:
        pairs = []
        for contestants in heats.values():
            row = [c for c in contestants if c.row == ratio.row]
            ours = max((c.rate for c in row if c.name == "ludus"), default=0.0)
            theirs = [c for c in row if c.name == ratio.peer and c.variant.startswith(ratio.variant)]
            pairs += [(c.rate, ours, c) for c in theirs if ours and c.rate]
        if pairs:
            theirs_rate, ours, peer = max(pairs, key=lambda pair: pair[0])
            ratios[ratio.name] = round(ours / theirs_rate, 3)
            detail = peer.best_setting if isinstance(peer, Raw) else peer.variant
            best_peers[ratio.name] = f"{peer.name} ({detail})" if detail else peer.name
    return ratios, best_peers


def summarise(benchmark: Benchmark) -> dict[str, Any]:
    """The JSON object of DESIGN §9."""
    ratios, best_peers = compare(benchmark.heats)
    medians: dict[str, Any] = {}
    for heat, contestants in benchmark.heats.items():
        for c in contestants:
            name = f"{c.name} ({c.variant})" if c.variant else c.name
            medians.setdefault(heat, {}).setdefault(c.row, {})[name] = c.metrics()
    ours = [c for c in benchmark.heats.get("echo", []) if c.name == "ludus"]
    if ours:
        for name, prefix in ((LATENCY, ""), (LATENCY_FROM_DUE, "due_")):
            p50, p99 = ours[0].median(f"{prefix}p50_ms"), ours[0].median(f"{prefix}p99_ms")
            medians.update({f"echo_{prefix}p50_ms": round(p50, 3), f"echo_{prefix}p99_ms": round(p99, 3)})
            ratios[name] = round(5 * p50 / p99, 3)
    medians["best_peers"] = best_peers
    return {
        "ratios": ratios,
        "medians": medians,
        "versions": benchmark.versions,
        "failures": benchmark.failures,
    }


def print_result(result: dict[str, Any]) -> None:
    medians = result["medians"]
    for heat in [name for name, rows in medians.items() if isinstance(rows, dict) and name != "best_peers"]:
        for row, found in medians[heat].items():
            heads = "".join(f"{head:>9}" for head in ("server", "loadgen", "p50 ms", "p99 ms"))
            print(f"\n{heat + ' / ' + row:40}{'answers/s':>11}{heads}   rounds")
            for name, f in sorted(found.items(), key=lambda item: -item[1]["rate"]):
                cores = "".join(f"{f[k]:9.2f}" if k in f else f"{'–':>9}" for k in ("server_cores", "loadgen_cores"))
                times = "".join(f"{f[k]:9.2f}" if k in f else f"{'–':>9}" for k in ("p50_ms", "p99_ms"))
                rounds = " ".join(f"{rate:,.0f}" for rate in f["rounds"])
                print(f"  {name:38}{f['rate']:11,.0f}{cores}{times}   {rounds}")
    print("\nserver, loadgen: cores that they kept busy; p50, p99: what a game waits for an answer at 80 % of the rate")
    for title, failure in result["failures"].items():
        print(f"\nFAILED  {title}: {failure}")
    print(f"\n{'ratio (higher is better)':36}{'ours ÷ theirs':>14}{'bar':>6}  against")
    bars = {**{ratio.name: ratio.bar for ratio in RATIOS}, LATENCY: LATENCY_BAR, LATENCY_FROM_DUE: None}
    for name, value in result["ratios"].items():
        bar = bars[name]
        below = "  BELOW THE BAR" if bar is not None and value < bar else ""
        against = medians["best_peers"].get(name, "5 × p50 ÷ p99 of ours")
        print(f"  {name:34}{value:14.2f}{'' if bar is None else bar:>6}  {against}{below}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--json", action="store_true", help="one JSON object on the last line of stdout")
    add(
        "--rounds",
        type=int,
        default=5,
        help="slices of each contestant; beside Ray at most 3 (default: %(default)s)",
    )
    add("--seconds", type=float, default=2.5, help="length of a slice (default: %(default)s)")
    add("--quick", action="store_true", help="one short round: shows that it works, not how fast")
    add("--only", nargs="+", choices=GROUPS, default=GROUPS, metavar="GROUP", help=f"some of {', '.join(GROUPS)}")
    args = parser.parse_args(argv)
    if args.quick:
        args.rounds, args.seconds = 1, 0.6
    if args.rounds < 1 or args.seconds <= 0:
        parser.error("--rounds must be at least 1 and --seconds more than 0")
    return args


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """All heats; the result is the JSON object of DESIGN §9."""
    progress.step("setting up")
    needs_peers = "echo" in args.only or "rayserve" in args.only
    make_environments("setup", *([".venv-peers-gateway/.ready"] if needs_peers else []))
    with Stage() as stage:
        benchmark = Benchmark(args, stage, progress)
        benchmark.run()
        progress.step("done")
        return summarise(benchmark)


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return conclude("gateway", lambda: run(args, Progress("gateway")), print_result, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
