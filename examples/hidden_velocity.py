"""CartPole-v1 that shows where cart and pole are, but not how fast they move: what is to be done must be remembered.

python examples/hidden_velocity.py
ludus train ppo examples/hidden_velocity.py:make --recurrent lstm --steps 200000
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np

import ludus

SHOWN = [0, 2]  # position and angle; 1 and 3 are their velocities
SETTINGS = {
    "num_steps": 128,  # how far back the recurrent state is trained to look
    "minibatch_size": 512,
    "num_epochs": 10,
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "lam": 0.9,
}


class HiddenVelocity(gymnasium.ObservationWrapper):
    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        seen = env.observation_space
        self.observation_space = gymnasium.spaces.Box(seen.low[SHOWN], seen.high[SHOWN], dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        return observation[SHOWN]


def make(render_mode: str | None = None) -> gymnasium.Env:
    return HiddenVelocity(gymnasium.make("CartPole-v1", render_mode=render_mode))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60_000)
    steps = parser.parse_args().steps
    for recurrent in ("none", "lstm"):
        run = ludus.train("ppo", f"{__file__}:make", recurrent=recurrent, steps=steps, seed=1, **SETTINGS)
        print(f"recurrent={recurrent}: return {run.result['eval_return_mean']:.1f}; {run.trial_dir}")
