"""Tuned settings by algorithm and family of environments, the same for every seed; a user's own go over them."""

from __future__ import annotations

import fnmatch
from typing import Any

__all__ = ["find"]

# The first pattern that fits an environment's name counts.
_PRESETS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "ppo": [
        ("*CartPole-v*", {"num_envs": 16, "num_steps": 64, "minibatch_size": 256, "num_epochs": 10, "gamma": 0.98,
                          "lam": 0.9, "learning_rate": 1e-3, "anneal": True}),
        ("ALE/*", {"num_envs": 16, "num_steps": 64, "minibatch_size": 256, "num_epochs": 2, "clip": 0.1,
                   "entropy_coef": 0.01, "learning_rate": 2.5e-4}),
    ],
}  # fmt: skip
_RECURRENT: dict[str, list[tuple[str, dict[str, Any]]]] = {}


def find(algorithm: str, env: str, *, recurrent: bool = False) -> dict[str, Any]:
    """The settings to begin with; empty where the defaults are all there is."""
    table = _RECURRENT.get(algorithm.lower(), []) if recurrent else _PRESETS.get(algorithm.lower(), [])
    return dict(next((settings for pattern, settings in table if fnmatch.fnmatchcase(env, pattern)), {}))
