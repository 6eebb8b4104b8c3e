"""Promoted, killed, resumed, served: a version with a tag stays what it was, and training is the same without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ludus import envs, errors
from ludus.discovery.memory import MemoryNames
from ludus.experiment.saved_config import load_config
from ludus.experiment.wiring import MODEL, make_policy_spec
from ludus.learn.policies.policy import Policy
from ludus.models.service import ModelService
from ludus.models.versions.store import VersionStore
from ludus.training import api as training
from ludus.workers.server import WorkerServer

from . import runs

SETTINGS = {
    "steps": 12_000, "num_envs": 4, "num_steps": 32, "num_epochs": 1, "minibatch_size": 64, "seed": 3, "threads": 1,
    "eval_episodes": 0, "checkpoint_seconds": 3600, "hidden": "16", "simulators": 1,
}  # fmt: skip


def promote(store: VersionStore) -> int:
    """Tag the newest version, which the trainer may have replaced a moment later."""
    while True:
        try:
            number = store.resolve(MODEL)
            store.tag(MODEL, "production", number)
            return number
        except errors.DataError:
            continue


@pytest.mark.chaos
@pytest.mark.parametrize("trainers", [1, 2])
def test_a_tagged_version_survives_a_resume_and_can_be_served(tmp_path: Path, trainers: int) -> None:
    settings = {**SETTINGS, "project": str(tmp_path), "trainers": trainers, "simulators": trainers}
    folder, env = tmp_path / "killed", runs.slow_cartpole(tmp_path)
    child = runs.start(runs.train, "ppo", env, {**settings, "trial": "killed"})
    store = VersionStore(folder / "models")
    runs.wait_until(lambda: (store.latest(MODEL) or 0) > 2)
    number = promote(store)
    version, weights = store.get(MODEL, "production")
    runs.wait_until(lambda: (store.latest(MODEL) or 0) > number)
    runs.kill(child)
    runs.wait_until(lambda: not runs.is_worked_on(folder))

    runs.hurry(tmp_path)
    resumed = training.resume("killed", project=str(tmp_path)).result
    whole = training.train("ppo", env, **settings, trial="whole").result
    assert resumed["weights_hash"] == whole["weights_hash"], "weights do not depend on the numbers of versions"
    assert store.tags(MODEL) == {"production": number}
    assert store.verify(MODEL, "production").digest == version.digest
    assert (store.latest(MODEL) or 0) > number

    spec = make_policy_spec(load_config(folder), envs.spec("CartPole-v1"))
    server = WorkerServer("inference/0", experiment="e", trial="t", names=MemoryNames())
    service = ModelService(server, folder / "models", MODEL, policy=spec)
    service.configure()
    obs = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    answers: list[dict] = []
    service.forward("production", (obs,), {}).bind(lambda answer, _error: answers.append(answer))
    service._poll()
    policy = Policy(spec)
    policy.load_weights(weights)
    assert answers[0]["version"] == number
    np.testing.assert_array_equal(answers[0]["outputs"]["params"], policy.runner()(obs)[0])
