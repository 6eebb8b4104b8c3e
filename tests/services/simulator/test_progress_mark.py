"""What shows that a simulator goes on."""

from __future__ import annotations

from pathlib import Path

from ludus.core import TimeStep
from ludus.discovery.memory import MemoryNames
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.models.versions.store import VersionStore
from ludus.services.simulator.service import SimulatorService, SimulatorSettings
from ludus.workers.server import WorkerServer

from .marked_envs import MarkedVectorEnv


def test_every_step_of_a_segment_is_progress(tmp_path: Path) -> None:
    """A segment may take longer than a worker may go on without progress."""
    marks = []

    class Watched(MarkedVectorEnv):
        def recv(self) -> TimeStep:
            marks.append(service.progress_mark())
            return super().recv()

    policy = PolicySpec(
        obs=MarkedVectorEnv.spec.obs, action=MarkedVectorEnv.spec.action, network=NetworkConfig(hidden=(8,))
    )
    VersionStore(tmp_path).publish("policy", Policy(policy, seed=2).weights(), number=0)
    settings = SimulatorSettings(
        make_groups=lambda: [Watched(1, mark=1.0)], policy=policy, num_steps=8, seed=5, is_async=False
    )
    with WorkerServer("simulator/0", experiment="e", trial="t", names=MemoryNames()) as server:
        service = SimulatorService(server, settings, tmp_path)
        service._start()
        service.collect(0)
        service._exit()
    assert len(marks) == len(set(marks)) == 8
