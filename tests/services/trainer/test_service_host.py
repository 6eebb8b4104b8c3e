"""The weights are there while the trainer is busy or waits."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ludus.discovery.memory import MemoryNames
from ludus.models.versions.client import connect
from ludus.models.versions.service import WeightsService
from ludus.services.trainer.service_host import Hosted, ServiceHost
from ludus.workers import context
from ludus.workers.panel import WorkerControlPanel
from ludus.workers.server import WorkerServer


@pytest.fixture
def trainer() -> Iterator[WorkerServer]:
    """A trainer's server that never answers a call."""
    names = MemoryNames()
    context.use(context.Context(experiment="e", trial="t", names=names))
    with WorkerServer("trainer/0", experiment="e", trial="t", names=names) as server:
        yield server
    context.use(None)


@pytest.mark.parametrize("is_far", [False, True])
def test_weights_are_had_from_a_trainer_that_answers_nothing(
    trainer: WorkerServer, tmp_path: Path, is_far: bool
) -> None:
    service = WeightsService(tmp_path / "versions")
    host = ServiceHost(service, "weights/0", beside=trainer)
    host.start()
    host.start()
    source = pickle.loads(pickle.dumps(Hosted("weights", 0)))  # noqa: S301 - as an engine sends it
    client = connect(source, is_far=is_far, cache=tmp_path / "cache")
    assert client.latest("policy") is None
    service.publish("policy", {"bias": np.arange(3.0)}, number=4)
    version, weights = client.get("policy", 4)
    assert version.number == 4
    assert weights["bias"].tolist() == [0.0, 1.0, 2.0]
    with contextlib.closing(WorkerControlPanel()) as panel:
        panel.connect("weights/0")
        for command in ("ping", "stats", "pause", "resume"):  # as `ludus ctl` sends to all
            answer = panel.request("weights/0", command)
        assert panel.request("weights/0", "stats")["latest"] == {"policy": 4}
        assert answer is None
    client.close()
    source.close()
    host.close()
    host.close()
