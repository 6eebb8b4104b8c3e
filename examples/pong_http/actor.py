"""The actor: from the game's JSON to the model's arrays and back; with a buffer it keeps what it did, to learn from.

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

    def start(self, session: ludus.Session, data: bytes) -> None:
        self.random = np.random.default_rng(zlib.crc32(session.encode()))

    async def tick(self, data: bytes) -> bytes:
        state = json.loads(data)
        await self.bring(state["reward"], is_over=False)
        features = np.array(
            [state["x"], state["y"], 10 * state["vx"], 10 * state["vy"], state["own"], state["other"]], np.float32
        )
        logits, value = await self.model.forward(features)
        (move,), (logp,) = HEAD.choose(logits[None], self.random, greedy=self.buffer is None)
        self.steps.append({"obs": features, "move": move, "logp": logp, "value": float(value)})
        return json.dumps({"move": int(move)}).encode()

    async def end(self, data: bytes, reason: str) -> None:
        last = json.loads(data) if data else {"reward": 0.0, "is_cut_off": True}
        if reason != "shutdown":  # then training is over, and nobody takes segments any more
            await self.bring(last["reward"], is_over=True, is_cut_off=last["is_cut_off"])
        ludus.merge("points", self.points)

    async def bring(self, reward: float, *, is_over: bool, is_cut_off: bool = False) -> None:
        """What the last move brought; a segment is pushed when it is full or the match is over."""
        if not self.steps:
            return
        self.points += reward
        self.steps[-1]["reward"] = reward
        if self.buffer is None:
            self.steps.clear()
            return
        if len(self.steps) > NUM_STEPS:  # the last is only there for its value; it begins the next segment
            await self.push(self.steps[:-1], after=self.steps[-1]["value"])
            self.steps = self.steps[-1:]
        if is_over:
            await self.push(self.steps[:-1] if is_cut_off else self.steps, after=self.steps[-1]["value"] * is_cut_off)
            self.steps = []

    async def push(self, steps: list[dict[str, Any]], *, after: float) -> None:
        if steps:
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
