"""Scenarios by name: `scenario:repositioning`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ludus.core import VectorEnv
from ludus.envs.scenarios.settings import Settings
from ludus.envs.scenarios.vector_env import RepositioningVectorEnv
from ludus.errors import EnvError
from ludus.spelling import nearest

__all__ = ["make"]

_NAMES = ("repositioning",)


def make(name: str, num_envs: int, *, num_threads: int, kwargs: dict[str, Any]) -> VectorEnv:
    """`kwargs` are the fields of `Settings`."""
    del num_threads  # all envs are stepped at once
    scenario = name.rpartition(":")[2]
    if scenario not in _NAMES:
        raise EnvError(f"there is no scenario {scenario!r}. {nearest(scenario, _NAMES)}")
    known = [field.name for field in fields(Settings)]
    for setting in kwargs:
        if setting not in known:
            raise EnvError(f"{name} takes no {setting!r}. {nearest(setting, known)}")
    return RepositioningVectorEnv(name, num_envs, Settings(**kwargs))
