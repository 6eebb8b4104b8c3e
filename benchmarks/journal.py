"""The gateway's journal after many sessions: how long a start takes, what is on the disk, what an event costs.

    python benchmarks/journal.py                         # 10 million past sessions: a few minutes
    python benchmarks/journal.py --sessions 100000
    python benchmarks/journal.py --json

The history is written by the journal itself, one start and one end for each session, with `--live` sessions open all
the time. Then the process that wrote it is killed (kill -9), one byte of the journal is flipped, and a gateway worker
is started on what is left: from its construction to the first answer of its port. It must know what was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ludus.gateway.actor import Actor
from ludus.gateway.client import GameClient, GameError
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.journal import Journal
from ludus.gateway.thread import GatewayThread

NUM_STARTS = 5  # the median counts
NUM_ASKED = 100


def write_history(path: Path, num_sessions: int, num_live: int) -> None:
    """In a process of its own, which is killed when it has said its metrics."""
    journal = Journal(path)
    for number in range(num_live):
        journal.began(f"live-{number}", "run-1")
    slowest = 0.0
    clock = time.perf_counter
    began = clock()
    for number in range(num_sessions):
        before = clock()
        journal.began(f"session-{number}", "run-1")
        journal.ended(f"session-{number}", "asked")
        slowest = max(slowest, clock() - before)
    seconds = clock() - began
    print(json.dumps({"us_per_event": seconds / num_sessions / 2 * 1e6, "slowest_ms": slowest * 1e3}), flush=True)
    signal.pause()


def measure(folder: Path, num_sessions: int, num_live: int, seed: int) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        options = GatewayOptions(port=probe.getsockname()[1], folder=folder)
    path = folder / f"{options.port}-0.journal"
    words = [sys.executable, __file__, "--write", str(path), "--sessions", str(num_sessions), "--live", str(num_live)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        metrics: dict[str, Any] = json.loads(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
    metrics["segment_mb"] = path.stat().st_size / 1e6
    metrics["folder_mb"] = sum(each.stat().st_size for each in folder.iterdir()) / 1e6
    damaged = bytearray(path.read_bytes())
    damaged[random.Random(seed).randrange(len(damaged))] ^= 0xFF
    starts = []
    for _ in range(NUM_STARTS):
        path.write_bytes(damaged)
        began, cpu_began = time.perf_counter(), time.process_time()
        with GatewayThread(Actor, options) as gateway:
            with GameClient(gateway.url, "new", retries=0) as game:
                game.start()
                starts.append((time.perf_counter() - began, time.process_time() - cpu_began))
                game.end()
            asked = range(min(NUM_ASKED, num_live))
            metrics["num_known_lost"] = sum(_is_lost(gateway.url, f"live-{number}") for number in asked)
    metrics["start_s"], metrics["start_cpu_s"] = (statistics.median(each) for each in zip(*starts, strict=True))
    return metrics


def _is_lost(url: str, session: str) -> bool:
    with GameClient(url, session, retries=0) as game:
        try:
            game.tick(b"")
        except GameError as error:
            return error.code == "session_lost"
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=10_000_000, help="that have started and ended")
    parser.add_argument("--live", type=int, default=1000, help="that are open when the worker is killed")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="which byte is flipped")
    parser.add_argument("--json", action="store_true", help="the metrics as the last line")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write is not None:
        write_history(args.write, args.sessions, args.live)
        return 0
    with tempfile.TemporaryDirectory(prefix="ludus-journal-") as folder:
        metrics = measure(Path(folder), args.sessions, args.live, args.seed)
    asked = min(NUM_ASKED, args.live)
    is_good = metrics["start_s"] < 1.0 and metrics["num_known_lost"] >= asked - 1  # the flipped byte may cost one
    print(f"{args.sessions:,} past sessions, {args.live:,} live ones when the worker was killed (seed {args.seed})")
    print(f"start to first answer   {metrics['start_s']:8.3f} s    (must be below 1)")
    print(f"processor time of it    {metrics['start_cpu_s']:8.3f} s")
    print(f"segment that was read   {metrics['segment_mb']:8.2f} MB")
    print(f"whole folder            {metrics['folder_mb']:8.2f} MB")
    print(f"a start or end          {metrics['us_per_event']:8.2f} µs   (slowest pair {metrics['slowest_ms']:.1f} ms)")
    print(f"lost sessions known     {metrics['num_known_lost']:5d} of {asked} that were asked for")
    if args.json:
        print(json.dumps({"sessions": args.sessions, "live": args.live, "is_good": is_good, **metrics}))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
