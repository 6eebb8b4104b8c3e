"""An environment of one's own: a `gymnasium.Env` and a function that makes it.

python examples/own_environment.py
ludus train ppo examples/own_environment.py:make --env-args '{"size": 9}'
ludus watch TRIAL
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import ludus

MOVES = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)])


class Orchard(gymnasium.Env):
    """Pick apples on a square of grass for 64 steps: one lies there at a time, and each is worth 1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, size: int, render_mode: str | None) -> None:
        self.size, self.render_mode = size, render_mode
        self.observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(len(MOVES))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)  # all chance comes from self.np_random: that makes episodes repeatable
        self.num_steps, (self.place, self.apple) = 0, self.np_random.integers(self.size, size=(2, 2))
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.num_steps += 1
        self.place = np.clip(self.place + MOVES[action], 0, self.size - 1)
        is_picked = bool((self.place == self.apple).all())
        if is_picked:
            self.apple = self.np_random.integers(self.size, size=2)
        return self._seen(), float(is_picked), False, self.num_steps >= 64, {}

    def render(self) -> Any:
        """What `ludus watch` shows; training needs none."""
        image = np.full((self.size, self.size, 3), (96, 160, 72), np.uint8)
        image[tuple(self.apple)], image[tuple(self.place)] = (208, 48, 40), (250, 240, 200)
        return image.repeat(24, axis=0).repeat(24, axis=1)

    def _seen(self) -> Any:
        return (np.concatenate([self.place, self.apple - self.place]) / self.size).astype(np.float32)


def make(size: int = 7, render_mode: str | None = None) -> gymnasium.Env:
    return Orchard(size, render_mode)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60_000)
    run = ludus.train("ppo", f"{__file__}:make", steps=parser.parse_args().steps, seed=1, learning_rate=1e-3)
    print(f"apples {run.result['eval_return_mean']:.1f}; {run.trial_dir}")
