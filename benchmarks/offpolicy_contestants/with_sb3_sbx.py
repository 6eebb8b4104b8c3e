"""SAC on Pendulum-v1 and DQN on CartPole-v1 with Stable-Baselines3 or with SBX, its sibling in JAX.

with_sb3_sbx.py sbx sac rate --steps 2000 --threads 1
with_sb3_sbx.py sb3 dqn to-goal

`rate` has the settings that all contestants share, `to-goal` those of RL Zoo for the same environment.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from progress import LEARNING_STARTS, Question

SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("sac", "shared"): {
        "learning_starts": LEARNING_STARTS,
        "train_freq": 1,
        "gradient_steps": 1,
        "batch_size": 256,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    ("dqn", "shared"): {
        "learning_starts": LEARNING_STARTS,
        "train_freq": 4,
        "gradient_steps": 1,
        "batch_size": 128,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    ("sac", "zoo"): {"learning_rate": 1e-3},
    ("dqn", "zoo"): {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
}
STEPS = {"sac": 20_000, "dqn": 50_000}  # RL Zoo's; exploration follows from them, and learning goes on after them


def main() -> None:
    asked = Question.from_command_line()
    limit_threads(asked.library, asked.threads)
    import gymnasium
    from stable_baselines3.common.callbacks import BaseCallback

    class Ask(BaseCallback):
        def _on_step(self) -> bool:
            return not asked.is_answered(self.num_timesteps)

    module = importlib.import_module("stable_baselines3" if asked.library == "sb3" else "sbx")
    settings = SETTINGS[asked.algorithm, asked.settings]
    device = {"device": "cpu"} if asked.library == "sb3" else {}
    make = getattr(module, asked.algorithm.upper())
    model = make("MlpPolicy", gymnasium.make(asked.task.env), seed=asked.seed, **device, **settings)
    asked.act = lambda obs: model.predict(obs, deterministic=True)[0]
    while not asked.is_answered(0):
        model.learn(STEPS[asked.algorithm], callback=Ask(), reset_num_timesteps=False)
    asked.send("stable-baselines3", *(["sbx-rl", "jax"] if asked.library == "sbx" else []))


def limit_threads(library: str, threads: int) -> None:
    """Before the first import of JAX, which reads its flags once. With more than one thread XLA takes all cores."""
    if library == "sbx" and threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import torch

    torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
