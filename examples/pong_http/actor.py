"""An actor of one's own: from the game's JSON to the model's arrays and back; with a buffer it keeps what it did.

The same class trains and serves: deploy.py leaves the buffer out.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import torch
from model import NUM_FEATURES, NUM_MOVES

import ludus
from ludus.data.actions import Discrete
from ludus.learn import ops

NUM_STEPS = 64  # in one segment
GAMMA, LAM = 0.97, 0.95
HEAD = ops.head_for(Discrete(NUM_MOVES))


class PongActor(ludus.Actor):
    def __init__(self, model: str, buffer: str | None = None) -> None:
        self.model = ludus.RemoteModel(model, local_mode=True)
        self.buffer = ludus.RemoteBuffer(buffer) if buffer else None
        self.steps: list[dict[str, Any]] = []
        self.points = 0.0

    async def start(self, session: ludus.Session, data: bytes) -> bytes:
        self.random = np.random.default_rng(zlib.crc32(session.encode()))
        return await self.choose(json.loads(data)["obs"])

    async def tick(self, data: bytes) -> bytes:
        step = json.loads(data)
        self.note(step["reward"])
        answer = await self.choose(step["obs"])
        if len(self.steps) > NUM_STEPS:  # the last is only there for its value; it is the first of the next segment
            await self.push(self.steps[:-1], after=self.steps[-1]["value"])
            self.steps = self.steps[-1:]
        return answer

    async def end(self, data: bytes, reason: str) -> None:
        ended = json.loads(data) if data else None
        if ended is not None:
            self.note(ended["reward"])
        ludus.merge("points", self.points)
        if reason == "shutdown":  # training is over, and nobody takes segments any more
            return
        if ended is None:  # the game is gone: what its last move led to is not known
            await self.push(self.steps[:-1], after=self.steps[-1]["value"])
        elif ended["terminated"]:
            await self.push(self.steps, after=0.0)
        else:
            _logits, value = await self.model.forward(np.array(ended["obs"], np.float32))
            await self.push(self.steps, after=float(value))

    async def choose(self, obs: list[float]) -> bytes:
        features = np.array(obs, np.float32)
        logits, value = await self.model.forward(features)
        (move,), (logp,) = HEAD.choose(logits[None], self.random, greedy=self.buffer is None)
        step = {"obs": features, "move": move, "logp": logp, "value": float(value)}
        self.steps = [*self.steps, step] if self.buffer is not None else [step]
        return json.dumps({"action": int(move)}).encode()

    def note(self, reward: float) -> None:
        """What the last move brought."""
        self.points += reward
        self.steps[-1]["reward"] = reward

    async def push(self, steps: list[dict[str, Any]], *, after: float) -> None:
        """A segment; `after` is the value of what is seen after its last step."""
        if steps and self.buffer is not None:
            await self.buffer.push_async(segment(steps, after), drop=False)


def segment(steps: list[dict[str, Any]], after: float) -> dict[str, np.ndarray]:
    """Steps with their advantages, filled up to `NUM_STEPS`; `weight` is 0 for what was filled up."""
    num = len(steps)
    reward = torch.tensor([[step["reward"]] for step in steps], dtype=torch.float32)
    value = torch.tensor([*([step["value"]] for step in steps), [after]], dtype=torch.float32)
    advantage, target = ops.gae(reward, value, torch.zeros(num, 1, dtype=torch.bool), gamma=GAMMA, lam=LAM)
    filled = {
        "obs": np.zeros((NUM_STEPS, NUM_FEATURES), np.float32),
        "move": np.zeros(NUM_STEPS, np.int64),
        **{name: np.zeros(NUM_STEPS, np.float32) for name in ("logp", "advantage", "target", "weight")},
    }
    for name in ("obs", "move", "logp"):
        filled[name][:num] = [step[name] for step in steps]
    filled["advantage"][:num], filled["target"][:num], filled["weight"][:num] = advantage[:, 0], target[:, 0], 1.0
    return filled
