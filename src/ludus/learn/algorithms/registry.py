"""Algorithms by name: ours, or `module:Class` and `file.py:Class` of the user's own. Loads without torch."""

from __future__ import annotations

import importlib
from typing import Any, cast

from ludus import spelling
from ludus.data.lookup import load_attribute
from ludus.errors import ConfigError
from ludus.learn.algorithms.algorithm import Algorithm, AlgorithmConfig

__all__ = ["NAMES", "algorithm_class", "config_class"]

_HOMES = {
    "ppo": ("ppo", "PPO"),
    "a2c": ("a2c", "A2C"),
    "impala": ("impala", "Impala"),
    "appo": ("appo", "APPO"),
    "dqn": ("dqn", "DQN"),
    "sac": ("sac", "SAC"),
    "apex": ("apex", "Apex"),
    "r2d2": ("r2d2", "R2D2"),
    "td3": ("td3", "TD3"),
    "ippo": ("ippo", "IPPO"),
    "mappo": ("mappo", "MAPPO"),
    "vdn": ("vdn", "VDN"),
    "qmix": ("qmix", "QMIX"),
    "bc": ("bc", "BC"),
    "iql": ("iql", "IQL"),
    "alphazero": ("alphazero", "AlphaZero"),
}
NAMES = tuple(_HOMES)


def algorithm_class(name: str) -> type[Algorithm[Any]]:
    """The class of that name. Raises `ConfigError` with the nearest one."""
    if ":" in name:
        found = load_attribute(name, what="algorithm")
        if not (isinstance(found, type) and issubclass(found, Algorithm)):
            raise ConfigError(f"{name!r} is not a subclass of ludus.learn.algorithms.algorithm.Algorithm.")
        return found
    if name.lower() not in _HOMES:
        there_are = f"There are {', '.join(NAMES)}, or module:Class of your own."
        if name.lower().replace("-", "_") in spelling.OTHER_ALGORITHMS:
            raise ConfigError(f"the algorithm {name!r} is not available yet. {there_are}")
        if (ours := spelling.variant(name)) is not None:
            raise ConfigError(f"there is no algorithm {name!r}; what is meant is {ours}. {there_are}")
        near = spelling.suggest(name.lower(), NAMES)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"there is no algorithm {name!r}. {hint}{there_are}")
    module, attribute = _HOMES[name.lower()]
    found = getattr(importlib.import_module(f"ludus.learn.algorithms.{module}"), attribute)
    return cast("type[Algorithm[Any]]", found)


def config_class(name: str) -> type[AlgorithmConfig]:
    """The class of its settings."""
    return algorithm_class(name).Config
