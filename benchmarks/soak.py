"""A gateway for ten minutes at half load: its resident memory must not grow.

    python benchmarks/soak.py                     # 10 minutes
    python benchmarks/soak.py --minutes 1 --json

64 sessions at a time, over and over, ask a model in the gateway's own process; a new version is published ten times a
second. Memory is read every second; the slope is that of a line through all readings after the first fifth.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import ludus

sys.path.insert(0, str(Path(__file__).parent / "loadgen"))
from generator import LoadGenerator

CONNECTIONS = 64
BODY_BYTES = 256
BURST_S = 5.0
BAR_MB_PER_MINUTE = 1.0


class SoakActor(ludus.Actor):
    def __init__(self, model: str) -> None:
        self.model = _model(model)

    async def tick(self, data: bytes) -> bytes:
        out = await self.model.forward(np.frombuffer(data, np.uint8).astype(np.float32))
        return out.tobytes()


_models: dict[str, Any] = {}


def _model(name: str) -> Any:
    if name not in _models:
        _models[name] = ludus.RemoteModel(name, local_mode=True)
    return _models[name]


def make_net() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(BODY_BYTES, 64), nn.Tanh(), nn.Linear(64, 8))


def resident_mb(pid: int) -> float:
    """Without what is mapped from files: the versions' files come and go with the page cache."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description="memory of a gateway under load")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ludus-soak-") as scratch:
        run = soak(Path(scratch), args.minutes)
    print(
        f"{run['minutes']:.1f} minutes at {run['rate']:,} requests/s, half of {run['most']:,}: {run['requests']:,} "
        f"requests, {run['errors']} errors, {run['versions']} versions, p99 {run['p99_ms']:.2f} ms\n"
        f"resident: {run['first_mb']:.1f} MB after the warm-up, {run['last_mb']:.1f} MB at the end, slope "
        f"{run['slope_mb_per_minute']:+.3f} MB/min (bar: below {BAR_MB_PER_MINUTE})",
        file=sys.stderr,
    )
    if args.json:
        print(json.dumps(run))
    return 0 if run["slope_mb_per_minute"] < BAR_MB_PER_MINUTE and not run["errors"] else 1


def soak(scratch: Path, minutes: float) -> dict[str, Any]:
    generator = LoadGenerator.build(scratch)
    trial = ludus.init(project=scratch, trial="soak")
    stop = threading.Event()
    try:
        net = make_net()
        model = ludus.RemoteModel("net", net, forward_args=(np.zeros(BODY_BYTES, np.float32),))
        actor = ludus.RemoteActor()
        actor.serve(Actor=SoakActor, model="net")
        pid = actor.statistics()[0]["pid"]
        load = {"connections": CONNECTIONS, "body_bytes": BODY_BYTES}
        most = int(generator.run("127.0.0.1", actor.port, seconds=3.0, warmup_s=2.0, **load)["requests_per_second"])
        rate = most // 2

        def publish() -> None:
            weights = ludus.get_torch_model_weights(net)
            while not stop.wait(0.1):
                model.publish_weights({name: array + 1e-6 for name, array in weights.items()})

        publisher = threading.Thread(target=publish, daemon=True)
        publisher.start()
        readings: list[tuple[float, float]] = []
        began = time.monotonic()

        def watch() -> None:
            while not stop.wait(1.0):
                readings.append((time.monotonic() - began, resident_mb(pid)))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        bursts = []
        while time.monotonic() - began < minutes * 60:
            bursts.append(generator.run("127.0.0.1", actor.port, seconds=BURST_S, rate=rate, **load))
        stop.set()
        publisher.join()
        watcher.join()
        versions = model.step
    finally:
        stop.set()
        trial.close()
    warm = [(at, mb) for at, mb in readings if at >= readings[-1][0] / 5]
    slope = float(np.polyfit([at / 60 for at, _ in warm], [mb for _, mb in warm], 1)[0])
    return {
        "minutes": readings[-1][0] / 60,
        "rate": rate,
        "most": most,
        "requests": sum(burst["requests"] for burst in bursts),
        "errors": sum(burst["errors"] for burst in bursts),
        "p99_ms": float(np.median([burst["p99_us"] for burst in bursts])) / 1e3,
        "versions": versions,
        "first_mb": warm[0][1],
        "last_mb": warm[-1][1],
        "slope_mb_per_minute": slope,
    }


if __name__ == "__main__":
    sys.exit(main())
