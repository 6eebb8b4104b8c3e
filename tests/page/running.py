"""A trial that runs, for views of it: its workers are threads of this process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ludus import launch
from ludus.gateway.gateway import GatewayOptions
from ludus.models.versions.store import VersionStore
from ludus.program import Program, RestartPolicy
from ludus.serving import promotion
from ludus.testing.gateways import CountingActor
from ludus.trial import services
from ludus.workers.worker import Worker


class Idle(Worker):
    idle_s = 0.01

    def _poll(self) -> int:
        return 0


def wait(is_so: Callable[[], Any]) -> None:
    until = time.monotonic() + 60.0
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


@contextlib.contextmanager
def running_trial(project: Path, name: str = "monday") -> Iterator[str]:
    """Workers, and a gateway that has shares of versions, whose address it gives."""
    program = Program("views")
    program.add("idle", Idle, replicas=2)
    program.add("last", Idle, restarts=RestartPolicy(max_restarts=0))
    options = GatewayOptions(port=0, folder=project / name / "gateway", route={"production": 0.75, "new": 0.25})
    gateway = services.gateway_program("actor-0", options, CountingActor, (), {}, num_workers=1, make_observer=None)
    for node in gateway.nodes:
        program.add(node.name, node.cls, *node.args, replicas=node.replicas, **node.kwargs)
    with launch.local(program, project=project, trial=name, threads=True) as run:
        panel = run.panel()
        wait(lambda: len(panel.auto_connect()) == 4)
        yield f"http://127.0.0.1:{panel.request('actor-0/0', 'where')['port']}"


def publish_versions(folder: Path) -> VersionStore:
    """Three versions of a model `policy`: 1 is production, 3 is new."""
    store = VersionStore(folder / "models", durable=False)
    for number in (1, 2, 3):
        store.publish("policy", {"w": np.full(3, number, np.float32)}, number=number)
    promotion.promote(folder, "policy", 1)
    store.tag("policy", "new", 3)
    return store
