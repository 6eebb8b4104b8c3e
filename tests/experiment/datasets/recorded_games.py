"""CartPole over HTTP against a controller that balances it, recorded by the gateway: an expert without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ludus.core import EnvSpec
from ludus.data.actions import Discrete
from ludus.data.spec import ArraySpec
from ludus.gateway.actor import Actor
from ludus.gateway.client.sync import GameClient
from ludus.gateway.record import Recorder
from ludus.testing.gateways import serving

CARTPOLE = EnvSpec(name="cartpole", obs=ArraySpec((4,), np.float32), action=Discrete(2))
SPEC_FILE = {"obs": {"shape": [4], "dtype": "float32"}, "action": {"discrete": 2}}


class Controller(Actor):
    """Pushes towards where the pole falls, and slowly back to the middle."""

    gains = np.array([0.1, 0.4, 2.0, 1.5])

    def start(self, session: Any, data: bytes) -> bytes:
        return self.tick(data) if data else b""

    def tick(self, data: bytes) -> bytes:
        return json.dumps({"action": int(self.gains @ np.array(json.loads(data)["obs"]) > 0.0)}).encode()

    def end(self, data: bytes) -> bytes:
        return b""


def record_cartpole(path: Path, *, episodes: int, seed: int = 0) -> list[float]:
    """The returns of the episodes that are in the recording."""
    recorder, env, returns = Recorder(path), gymnasium.make("CartPole-v1"), []
    with serving(Controller, observer=recorder) as url, GameClient(url, timeout_s=60.0) as client:
        for episode in range(episodes):
            obs, _ = env.reset(seed=seed + episode)
            answer, total, is_over = client.start(json.dumps({"obs": obs.tolist()}).encode()), 0.0, False
            while not is_over:
                obs, reward, terminated, truncated, _ = env.step(json.loads(answer)["action"])
                total, is_over = total + float(reward), terminated or truncated
                body = json.dumps({"obs": obs.tolist(), "reward": float(reward), "terminated": terminated}).encode()
                answer = client.end(body) if is_over else client.tick(body)
            returns.append(total)
    recorder.close()
    return returns
