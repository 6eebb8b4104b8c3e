"""The simulator as a worker: every replica plays episodes of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ludus import envs
from ludus.core import VectorEnv
from ludus.discovery.memory import MemoryNames
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.models.versions.store import VersionStore
from ludus.services.simulator.service import SimulatorService, SimulatorSettings
from ludus.workers.server import WorkerServer


def make_groups() -> list[VectorEnv]:
    return [envs.make("CartPole-v1", 2)]


def test_two_replicas_play_different_episodes_and_one_that_is_started_again_the_same(tmp_path: Path) -> None:
    env = envs.spec("CartPole-v1")
    policy = PolicySpec(obs=env.obs, action=env.action, network=NetworkConfig(hidden=(8,)))
    VersionStore(tmp_path, keep=4).publish("policy", Policy(policy).weights(), number=1)
    settings = SimulatorSettings(make_groups=make_groups, policy=policy, num_steps=4, seed=5, is_async=False)

    def first_obs(index: int) -> np.ndarray:
        server = WorkerServer(f"simulator/{index}", experiment="e", trial="t", names=MemoryNames())
        service = SimulatorService(server, settings, tmp_path)
        service._start()
        segment = service.collect(1)["segment"]
        server.close()
        return segment["obs"][0]

    assert len(np.unique(np.concatenate([first_obs(0), first_obs(1)]), axis=0)) == 4
    np.testing.assert_array_equal(first_obs(1), first_obs(1))
