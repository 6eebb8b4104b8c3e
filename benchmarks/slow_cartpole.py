"""CartPole whose steps take as long as those of a real simulator would: what `benchmarks/apex.py` trains on."""

from __future__ import annotations

import time
from typing import Any

import gymnasium


class Slow(gymnasium.Wrapper):
    def __init__(self, env: gymnasium.Env, step_s: float) -> None:
        super().__init__(env)
        self._step_s = step_s

    def step(self, action: Any) -> Any:
        time.sleep(self._step_s)
        return self.env.step(action)


def make(step_s: float = 0.002) -> gymnasium.Env:
    return Slow(gymnasium.make("CartPole-v1"), step_s)
