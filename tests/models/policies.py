"""Small policies, and callers that compare what they are answered with the policy itself; imported by workers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ludus.data.actions import Discrete
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.models.client import ModelClient
from ludus.workers.remote import Remote

torch.set_num_threads(1)

PLAIN = PolicySpec(obs=ArraySpec((4,), np.float32, -10.0, 10.0), action=Discrete(3))
RECURRENT = PolicySpec(
    obs={"place": ArraySpec((4,), np.float32), "goal": ArraySpec((2,), np.float32)},
    action=Discrete(3),
    network=NetworkConfig(hidden=(16,), recurrent="gru", recurrent_size=8),
)


_made: dict[tuple[int, int], Policy] = {}
_making = threading.Lock()  # building a policy seeds torch's own generator, which all threads share


def policy_of(spec: PolicySpec, number: int) -> Policy:
    """Version `number`: its weights are random, and large enough that the outputs of two versions differ widely."""
    with _making:
        if (id(spec), number) not in _made:
            policy = _made[id(spec), number] = Policy(spec)
            generator = torch.Generator().manual_seed(number)
            with torch.no_grad():
                for parameter in policy.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator))
        return _made[id(spec), number]


def observe(spec: PolicySpec, num_rows: int, seed: int) -> tuple[Nest, Nest, np.ndarray]:
    """Observations, state and first marks of so many rows."""
    rng = np.random.default_rng(seed)

    def draw(leaf: ArraySpec) -> np.ndarray:
        return rng.standard_normal((num_rows, *leaf.shape)).astype(np.float32)

    obs = {name: draw(leaf) for name, leaf in spec.obs.items()} if isinstance(spec.obs, dict) else draw(spec.obs)
    state = policy_of(spec, 0).initial_state(num_rows)
    if isinstance(state, np.ndarray):
        state = rng.standard_normal(state.shape).astype(np.float32)
    return obs, state, rng.random(num_rows) < 0.2


def call_of(asked: tuple[Nest, Nest, np.ndarray]) -> tuple[Any, ...]:
    """The arguments of a `forward`: a policy without state is given observations only."""
    return asked[:1] if asked[1] is None else asked


def wait_until(is_so: Callable[[], Any], timeout_s: float = 30.0) -> None:
    until = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.01)


HANGING = """
import contextlib, pathlib, threading
import torch

HERE = pathlib.Path(__file__).parent


class Hanging(torch.nn.Module):
    '''Once the file `go` is there, the first process to run it never comes back from that.'''

    def __init__(self, obs, num_outputs):
        super().__init__()
        self.linear = torch.nn.Linear(obs.shape[0], num_outputs)

    def forward(self, obs):
        if (HERE / "go").exists():
            with contextlib.suppress(FileExistsError):
                (HERE / "hung").touch(exist_ok=False)
                threading.Event().wait()
        return self.linear(obs), obs.sum(-1)
"""


class Asker:
    """Calls with pinned versions and compares each answer with the policy of that version, evaluated here."""

    def __init__(self, inference: Remote, out: str, *, versions: list[int], num_calls: int, seed: int) -> None:
        self.client = ModelClient.of(inference)
        self.out = Path(out)
        self.versions = versions
        self.num_calls = num_calls
        self.seed = seed

    def run(self) -> None:
        runners = {number: policy_of(PLAIN, number).runner() for number in self.versions}
        rng = np.random.default_rng(self.seed)
        worst, wrong = 0.0, 0
        for call in range(self.num_calls):
            number = int(rng.choice(self.versions))
            obs, state, first = observe(PLAIN, int(rng.integers(1, 9)), self.seed * 1000 + call)
            asked = self.client.ask(number, (obs,), {})
            params, _ = runners[number](obs, state, first)
            worst = max(worst, float(np.abs(asked.result()["params"] - params).max()))
            wrong += asked.version != number
        self.out.write_text(json.dumps({"worst": worst, "wrong": wrong}))
