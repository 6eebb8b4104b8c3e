"""Has a policy learnt its task? The same question, asked in the same way, of every library."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

NUM_EPISODES = 10
EVERY_STEPS = 1000

Act = Callable[[np.ndarray], np.ndarray]  # observations (10, …) to greedy actions (10,) or (10, 1)


class Task(NamedTuple):
    env: str
    goal: float
    play: Callable[[Act, int], float]  # with a seed: the mean return of ten greedy episodes


def play_cartpole(act: Act, seed: int) -> float:
    env = CartPoleVectorEnv(num_envs=NUM_EPISODES, max_episode_steps=500)
    obs, _ = env.reset(seed=seed)
    running = np.ones(NUM_EPISODES, bool)
    lengths = np.zeros(NUM_EPISODES)  # CartPole pays 1 a step
    while running.any():
        obs, _, terminated, truncated, _ = env.step(act(np.asarray(obs, np.float32)))
        lengths += running
        running &= ~(terminated | truncated)
    return float(lengths.mean())


def play_pendulum(act: Act, seed: int) -> float:
    """Gymnasium's Pendulum-v1, ten at a time: one by one its 2,000 steps would take longer than the policy's."""
    rng = np.random.default_rng(seed)
    angle, speed = rng.uniform(-np.pi, np.pi, NUM_EPISODES), rng.uniform(-1.0, 1.0, NUM_EPISODES)
    total = np.zeros(NUM_EPISODES)
    for _ in range(200):
        obs = np.stack([np.cos(angle), np.sin(angle), speed], axis=1).astype(np.float32)
        torque = np.clip(np.asarray(act(obs)).reshape(NUM_EPISODES), -2.0, 2.0)
        upright = (angle + np.pi) % (2 * np.pi) - np.pi
        total -= upright**2 + 0.1 * speed**2 + 0.001 * torque**2
        speed = np.clip(speed + (15.0 * np.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        angle = angle + speed * 0.05
    return float(total.mean())


TASKS = {
    "dqn": Task("CartPole-v1", 475.0, play_cartpole),
    "sac": Task("Pendulum-v1", -180.0, play_pendulum),
}
