"""The same run on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ludus.telemetry.metrics_file import read_metrics
from ludus.training import api as training

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
SMALL = {
    "num_envs": 4, "num_steps": 32, "num_epochs": 1, "seed": 3, "threads": 1, "eval_episodes": 2, "steps": 4_000,
    "engine": "ray",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 6, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    yield made
    made.shutdown()


@pytest.mark.parametrize(
    ("algorithm", "settings"), [("ppo", {"simulators": 1}), ("ppo", {}), ("appo", {"simulators": 1, "inference": 1})]
)
def test_a_run_on_ray_trains_and_evaluates(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, settings: dict[str, Any]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    run = training.train(algorithm, "CartPole-v1", project=str(tmp_path), trial="run", **SMALL, **settings)
    assert run.result["steps"] >= 4_000
    assert run.result["eval_episodes"] == 2
    assert (tmp_path / "run" / "logs" / "trainer-0.log").exists()
    assert read_metrics(tmp_path / "run")[-1]["step"] == run.result["steps"], "sent to the driver"
    if algorithm == "ppo":
        here = training.train(
            algorithm, "CartPole-v1", project=str(tmp_path), trial="here",
            **{**SMALL, **settings, "engine": "local"},
        )  # fmt: skip
        if settings:
            assert here.result["weights_hash"] == run.result["weights_hash"]
