"""Tuned settings by algorithm and family of environments, the same for every seed; a user's own go over them."""

from __future__ import annotations

import fnmatch
from typing import Any

__all__ = ["find"]

_MATRIX: dict[str, Any] = {
    "steps": 3_000, "num_envs": 16, "num_steps": 2, "sequence_length": 2, "min_size": 200, "updates_per_step": 0.15,
    "epsilon_end": 1.0, "learning_rate": 1e-2, "tau": 0.05,
}  # fmt: skip
# An episode has 25 steps, and one in which the next begins: each segment, and each sequence, is one of them.
_SPREAD: dict[str, Any] = {
    "recurrent": "gru", "num_envs": 16, "num_steps": 26, "sequence_length": 25, "min_size": 2_000,
    "updates_per_step": 0.04, "n_step": 5, "tau": 0.03, "epsilon_fraction": 0.3,
}  # fmt: skip
_SPREAD_ON_POLICY: dict[str, Any] = {
    "num_envs": 16, "num_steps": 104, "minibatch_size": 832, "num_epochs": 8, "learning_rate": 7e-4,
}  # fmt: skip

# The first pattern that fits an environment's name counts.
_PRESETS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "ppo": [
        ("*CartPole-v*", {"num_envs": 32, "num_steps": 32, "minibatch_size": 256, "num_epochs": 6, "gamma": 0.98,
                          "lam": 0.9, "learning_rate": 5e-3, "anneal": True, "normalise_obs": False,
                          "entropy_coef": 0.0}),
        ("*Acrobot-v*", {"num_envs": 16, "num_steps": 128, "minibatch_size": 256, "num_epochs": 4, "gamma": 0.99,
                         "lam": 0.94, "learning_rate": 1e-3, "anneal": True, "entropy_coef": 0.0}),
        ("*LunarLander-v*", {"num_envs": 16, "num_steps": 512, "minibatch_size": 512, "num_epochs": 10, "gamma": 0.999,
                             "lam": 0.98, "learning_rate": 5e-4, "anneal": True, "entropy_coef": 0.01}),
        # Games are short and are won or lost at their end; each move is seen once or twice, in large minibatches.
        ("board:*", {"num_envs": 256, "num_steps": 32, "minibatch_size": 1024, "num_epochs": 3, "gamma": 1.0,
                     "lam": 0.9, "learning_rate": 1e-3, "normalise_obs": False, "normalise_returns": False,
                     "entropy_coef": 0.02, "hidden": (256, 256), "activation": "relu"}),
        # A3C's network: a third of the work of DQN's, for which some more steps of Pong are a good price.
        # Many small gradient steps: 48 for each 1,024 steps of Pong learn in 250k steps what 8 did not in 400k.
        ("*ALE/*", {"num_envs": 16, "num_steps": 64, "minibatch_size": 64, "num_epochs": 3, "clip": 0.1,
                    "entropy_coef": 0.01, "learning_rate": 3.5e-4, "encoder": "small"}),
    ],
    "a2c": [
        ("*CartPole-v*", {"gamma": 0.98, "learning_rate": 1e-3, "anneal": True, "normalise_obs": False,
                          "normalise_returns": False}),
    ],
    "impala": [
        ("*CartPole-v*", {"num_steps": 16, "num_epochs": 2, "learning_rate": 1e-3, "anneal": True,
                          "max_grad_norm": 0.5}),
        ("*ALE/*", {"num_envs": 16, "num_steps": 32, "minibatch_size": 128, "learning_rate": 2.5e-4, "groups": 1,
                    "encoder": "small"}),
    ],
    "appo": [
        ("*CartPole-v*", {"num_steps": 16, "lam": 0.95, "learning_rate": 1e-3, "anneal": True, "max_grad_norm": 0.5}),
        # The trainer is the slower one: what waits for it only grows old.
        ("*ALE/*", {"num_envs": 16, "num_steps": 64, "minibatch_size": 64, "num_epochs": 3, "clip": 0.1, "queue": 1,
                    "entropy_coef": 0.01, "learning_rate": 3.5e-4, "groups": 1, "encoder": "small"}),
    ],
    # One body, wide at first, learns most per second here. Openings at random show it what good players do not allow.
    "alphazero": [
        ("board:connect_four", {"env_args": '{"threats": true, "random_moves": 8}', "num_envs": 256, "num_steps": 32,
                                "num_epochs": 2, "simulations": 32, "hidden": (512, 64), "activation": "relu",
                                "shared": True, "anneal": True}),
        ("board:tic_tac_toe", {"env_args": '{"random_moves": 8}', "num_envs": 128, "num_steps": 16, "num_epochs": 3,
                               "simulations": 32, "hidden": (256, 64), "activation": "relu", "shared": True,
                               "anneal": True}),
        ("board:*", {"hidden": (256, 64), "activation": "relu", "shared": True}),
    ],
    # Offline, steps are transitions that are drawn: these are some 2,000 and 8,000 gradient steps.
    "bc": [("*", {"steps": 500_000})],
    "iql": [("*", {"steps": 2_000_000})],
    "dqn": [
        ("*CartPole-v*", {"learning_rate": 1e-3}),
        ("*Acrobot-v*", {"learning_rate": 1e-3}),
    ],
    # Agents that see a part of the env only need state; in matrix games they see all.
    "vdn": [("matrix:*", _MATRIX), ("*simple_spread_v*", _SPREAD), ("*", {"recurrent": "gru"})],
    "qmix": [
        # Its best moves are next to the worst: what is missed is learnt from as it is, what is overrated a tenth as
        # much, and of that most what would be played: of the newest steps, all but a fifth are what is thought best.
        ("matrix:climbing", {**_MATRIX, "sequence_length": 1, "batch_size": 64, "capacity": 1_000, "pessimism": 0.1,
                             "epsilon_end": 0.2, "epsilon_fraction": 0.5}),
        ("matrix:*", _MATRIX),
        ("*simple_spread_v*", _SPREAD),
        ("*", {"recurrent": "gru"}),
    ],
    "mappo": [("*simple_spread_v*", _SPREAD_ON_POLICY)],
    "ippo": [("*simple_spread_v*", _SPREAD_ON_POLICY)],
    "sac": [
        # 5-step targets from all steps so far left the cart drifting on some seeds, at every target entropy tried.
        ("*CartPole-v*", {"n_step": 2, "normalise_obs": True, "tau": 0.01, "batch_size": 128, "updates_per_step": 0.5,
                          "capacity": 10_000, "target_entropy_share": 0.1, "initial_alpha": 0.1, "num_envs": 4,
                          "learning_rate": 2e-3, "anneal": True, "hidden": (64, 64)}),
        ("*Pendulum-v*", {"hidden": (64, 64)}),  # as good as 256 units, in a quarter of the time
        # A random push that is kept for about half a swing of the car is meant to reach the goal by chance.
        ("*MountainCarContinuous-v*", {"hold": 40, "min_size": 5_000, "batch_size": 128, "hidden": (64, 64)}),
    ],
}  # fmt: skip


def find(algorithm: str, env: str) -> dict[str, Any]:
    """The settings to begin with; empty where the defaults are all there is."""
    table = _PRESETS.get(algorithm.lower(), [])
    return dict(next((settings for pattern, settings in table if fnmatch.fnmatchcase(env, pattern)), {}))
