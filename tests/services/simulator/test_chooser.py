"""Parameters from inference workers are those of the policy here: the same seed, the same segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus import envs
from ludus.data import nest as nests
from ludus.discovery.memory import MemoryNames
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.models.client import ModelClient
from ludus.models.service import ModelService
from ludus.models.versions.store import VersionStore
from ludus.services.simulator.chooser import Chooser, InlineChooser, RemoteChooser
from ludus.services.simulator.simulator import Simulator
from ludus.workers.server import WorkerServer

torch.set_num_threads(1)


class Answered:
    """A call whose service is in this process, and has answered."""

    def __init__(self, service: ModelService, *args: Any) -> None:
        self._outcomes: list[Any] = []
        service.forward(*args).bind(lambda value, error: self._outcomes.append((value, error)))
        service._poll()

    def result(self) -> Any:
        value, error = self._outcomes[0]
        if error is not None:
            raise error
        return value


class InProcess:
    def __init__(self, service: ModelService) -> None:
        self._service = service

    def submit(self, command: str, *args: Any) -> Answered:
        assert command == "forward"
        return Answered(self._service, *args)


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
@pytest.mark.parametrize("sizes", [(4,), (2, 2)])
def test_remote_inference_gives_the_segments_that_the_policy_itself_would(
    tmp_path: Path, sizes: tuple[int, ...], recurrent: str
) -> None:
    env = envs.spec("CartPole-v1")
    network = NetworkConfig(hidden=(16,), recurrent=recurrent, recurrent_size=8)
    spec = PolicySpec(obs=env.obs, action=env.action, network=network)
    store = VersionStore(tmp_path, keep=4)
    policies = {number: Policy(spec, seed=number) for number in (7, 8)}
    for number, policy in policies.items():
        store.publish("policy", policy.weights(), number=number)
    server = WorkerServer("inference/0", experiment="e", trial="t", names=MemoryNames())
    service = ModelService(server, tmp_path, "policy", policy=spec)
    service.configure()
    here = Policy(spec)
    remote = RemoteChooser(ModelClient.of(InProcess(service)), here.head)  # type: ignore[arg-type]

    def simulate(chooser: Chooser) -> Simulator:
        groups = [envs.make("CartPole-v1", size) for size in sizes]
        return Simulator(groups, chooser, num_steps=12, seed=5, state_spec=here.state_spec)

    inline, elsewhere = simulate(InlineChooser(here)), simulate(remote)
    for number in (7, 8, 7):
        here.load_weights(policies[number].weights())
        remote.version = number
        mine, theirs = inline.collect(number).segment, elsewhere.collect(number).segment
        pairs = zip(nests.leaves(mine.to_nest()), nests.leaves(theirs.to_nest()), strict=True)
        assert all(np.array_equal(a, b) if a is not None else b is None for a, b in pairs)
    inline.close()
    elsewhere.close()


@pytest.mark.parametrize("is_remote", [False, True])
def test_each_row_explores_by_its_own_exponent(is_remote: bool) -> None:
    """In groups, too: epsilon to the power 0 is always random, to a large one never."""
    env = envs.spec("CartPole-v1")
    spec = PolicySpec(obs=env.obs, action=env.action, network=NetworkConfig(hidden=(8,)), head="epsilon_greedy")
    policy = Policy(spec, seed=1)
    assert policy.exploration is not None
    policy.exploration.fill_(0.5)
    exponents = np.float32([0, 60, 60, 60, 0, 60])

    class Client:
        def ask(self, version: Any, args: Any, kwargs: Any) -> Any:
            params, _ = policy.runner()(*args)
            return type("Asked", (), {"result": lambda self: {"params": params}})()

    chooser = RemoteChooser(Client(), policy.head, exponents) if is_remote else InlineChooser(policy, exponents)
    groups = [envs.make("CartPole-v1", 4), envs.make("CartPole-v1", 2)]
    segment = Simulator(groups, chooser, num_steps=64, seed=5).collect(version=0).segment
    greedy = np.stack(
        [policy.act(obs, None, None, np.random.default_rng(0), greedy=True)[0] for obs in segment.obs[:-1]]
    )
    is_greedy = (segment.action == greedy) | ~segment.active[:-1]
    np.testing.assert_array_equal(is_greedy.all(0), exponents > 0)
