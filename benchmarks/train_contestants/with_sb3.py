"""Stable-Baselines3's PPO on CartPole-v1 and Pong, in one process (DummyVecEnv).

with_sb3.py rate --seconds 8      steps per second at the work that all contestants share
with_sb3.py to-475                seconds from process start to a greedy return of 475, RL Zoo's tuned settings
with_sb3.py start                 seconds from process start to the end of the first update
with_sb3.py pong --seconds 30     steps per second on Pong, RL Zoo's settings for Atari
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import ale_py
import gymnasium
import numpy as np
import torch
from greedy import EVERY_STEPS, GOAL, greedy_return
from report import Pace, Report
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack

FOREVER = 10**9
gymnasium.register_envs(ale_py)


class AfterUpdates(BaseCallback):
    """Calls `after_update(steps)` when an update is done, until it says that this is enough."""

    def __init__(self, after_update: Callable[[int], bool]) -> None:
        super().__init__()
        self._after_update = after_update
        self._enough = False

    def _on_rollout_start(self) -> None:
        if self.num_timesteps > 0:
            self._enough = self._after_update(self.num_timesteps)

    def _on_step(self) -> bool:
        return not self._enough


def measure_rate(seconds: float, *, seed: int, report: Report) -> None:
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", 64),
        n_steps=32,
        batch_size=512,
        n_epochs=4,
        learning_rate=2.5e-4,
        ent_coef=0.01,
        policy_kwargs={"net_arch": [64, 64]},
        device="cpu",
        seed=seed,
    )
    measure_pace(model, seconds, report=report)


def measure_pong(seconds: float, *, seed: int, report: Report) -> None:
    raw = {"frameskip": 1, "repeat_action_probability": 0.0, "full_action_space": False}  # PongNoFrameskip-v4
    model = PPO(
        "CnnPolicy",
        VecFrameStack(make_atari_env("ALE/Pong-v5", 8, seed=seed, env_kwargs=raw), 4),
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        learning_rate=2.5e-4,
        clip_range=0.1,
        ent_coef=0.01,
        device="cpu",
        seed=seed,
    )
    measure_pace(model, seconds, report=report)


def measure_pace(model: PPO, seconds: float, *, report: Report) -> None:
    pace = Pace()

    def after_update(steps: int) -> bool:
        pace.mark(steps)
        return pace.measured_s() >= seconds

    model.learn(FOREVER, callback=AfterUpdates(after_update))
    report.send("stable-baselines3", steps_per_second=pace.rate(), steps=model.num_timesteps)


def train_to_goal(*, seed: int, report: Report) -> None:
    """RL Zoo's hyper-parameters for PPO on CartPole-v1, made for 100,000 steps."""
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", 8, seed=seed),
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=lambda left: left * 1e-3,
        clip_range=lambda left: left * 0.2,
        device="cpu",
        seed=seed,
    )
    evaluated_at, reached_s = 0, None

    def act(obs: np.ndarray) -> np.ndarray:
        return model.predict(obs, deterministic=True)[0]

    def after_update(steps: int) -> bool:
        nonlocal evaluated_at, reached_s
        if steps - evaluated_at < EVERY_STEPS:
            return False
        evaluated_at = steps
        if greedy_return(act, seed=steps) >= GOAL:
            reached_s = report.seconds()
        return reached_s is not None

    while reached_s is None:  # 100,000 steps were not enough: 100,000 more
        model.learn(100_000, callback=AfterUpdates(after_update), reset_num_timesteps=False)
    report.send("stable-baselines3", seconds=reached_s, steps=evaluated_at)


def measure_start(*, seed: int, report: Report) -> None:
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 8), n_steps=256, batch_size=256, n_epochs=4, device="cpu")
    model.set_random_seed(seed)
    model.learn(8 * 256)
    report.send("stable-baselines3", seconds=report.seconds(), steps=model.num_timesteps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=["rate", "to-475", "start", "pong"])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    report = Report.take_stdout()
    torch.set_num_threads(args.threads)
    if args.task == "rate":
        measure_rate(args.seconds, seed=args.seed, report=report)
    elif args.task == "pong":
        measure_pong(args.seconds, seed=args.seed, report=report)
    elif args.task == "to-475":
        train_to_goal(seed=args.seed, report=report)
    else:
        measure_start(seed=args.seed, report=report)


if __name__ == "__main__":
    main()
