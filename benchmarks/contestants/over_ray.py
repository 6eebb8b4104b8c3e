"""Echo through a Ray actor on a cluster that this process starts and ends.

    over_ray.py client

Many callers are many calls outstanding from one driver: Ray has no connections to count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before Ray is imported

import ray
from slices import Caller, Callers, Channel, Nest


@ray.remote(num_cpus=1)
class Echo:
    def echo(self, nest: Nest) -> Nest:
        return nest


class OneCaller:
    def __init__(self) -> None:
        self._actor = Echo.remote()

    def call(self, nest: Nest) -> Nest:
        return ray.get(self._actor.echo.remote(nest))


class ManyCallers:
    def __init__(self, num_callers: int) -> None:
        self.num_callers = num_callers
        self._actor = Echo.remote()
        self._pending: dict[ray.ObjectRef, int] = {}

    def submit(self, caller: int, nest: Nest) -> None:
        self._pending[self._actor.echo.remote(nest)] = caller

    def finished(self) -> Iterator[tuple[int, Nest]]:
        done, _ = ray.wait(list(self._pending), num_returns=1)
        for reference in done:
            yield self._pending.pop(reference), ray.get(reference)


def connect(order: dict[str, Any]) -> Caller | Callers:
    return OneCaller() if order["callers"] == 1 else ManyCallers(order["callers"])


if __name__ == "__main__":
    channel = Channel()
    folder = Path(os.environ["BENCH_FOLDER"]) / "ray"
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=256 << 20,
        _temp_dir=str(folder),
        _node_ip_address="127.0.0.1",
    )
    try:
        channel.hello("ray", "numpy")
        channel.take_orders(connect)
    finally:
        ray.shutdown()
