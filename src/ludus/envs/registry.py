"""From a name to envs. The adapter a name belongs to is imported when it is first asked for.

| name | adapter |
|---|---|
| `CartPole-v1`, `my_package:MyGame-v0` | `gymnasium` |
| `ALE/Pong-v5` | `ale` |
| `envpool:Pong-v5` | `envpool` |
| `pettingzoo:connect_four_v3`, `mpe2:simple_spread_v3` | `pettingzoo` |
| `lbforaging:Foraging-8x8-2p-2f-coop-v3`, `rware:rware-tiny-2ag-v2` | `tuple_spaces` |
| `board:connect_four`, `board:tic_tac_toe` | `boards.named` |
| `openspiel:kuhn_poker` | `openspiel.named` |
| `matrix:rps`, `matrix:two_step` | `matrix.named` |
| `scenario:repositioning` | `scenarios.named` |
| `my_module:make_game`, `games/mine.py:make_game` | `function` |
| `game://127.0.0.1:8000` | `games`: they call; nothing is made |
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

from ludus.core import EnvSpec, Rules, VectorEnv
from ludus.envs.agent_ids import AgentIds
from ludus.envs.games import Games, is_game
from ludus.errors import EnvError

__all__ = ["PREFIXES", "clips_rewards", "evaluation_args", "make", "rules", "spec", "without_rules"]

PREFIXES = {
    "envpool": "envpool",
    "pettingzoo": "pettingzoo",
    "mpe2": "pettingzoo",
    "lbforaging": "tuple_spaces",
    "rware": "tuple_spaces",
    "board": "boards.named",
    "openspiel": "openspiel.named",
    "matrix": "matrix.named",
    "scenario": "scenarios.named",
}
"""What may stand before the colon → the adapter; anything else there is a module."""

_WITH_RULES = ("boards.named", "function")
"""Adapters whose envs may be played by `core.Rules`."""

_CLIPPING = {"ale": ("reward_clipping", True), "envpool": ("reward_clip", False)}
"""Adapter → the argument that clips rewards, and its default."""
_EPISODIC_LIFE = "episodic_life"  # of both: an episode is a life instead of a game


def make(name: str, num_envs: int, *, num_threads: int = 1, agent_ids: bool = False, **kwargs: Any) -> VectorEnv:
    """`num_envs` copies of the env of this name; close them when done.

    `num_threads` is for groups that step in native code (ALE, EnvPool). With `agent_ids` each agent sees which of
    several it is: see `AgentIds`. `kwargs` go to whatever makes the env.
    Raises `EnvError`, with the nearest names, if there is no such env, and `MissingExtra` if its library is not
    installed.
    """
    if num_envs < 1 or num_threads < 1:
        raise EnvError(f"{name}: {num_envs} envs on {num_threads} threads cannot be made; at least 1 of each")
    adapter = importlib.import_module(f"ludus.envs.{adapter_of(name)}")
    vector_env: VectorEnv = adapter.make(name, num_envs, num_threads=num_threads, kwargs=kwargs)
    return AgentIds(vector_env) if agent_ids and len(vector_env.spec.agents) > 1 else vector_env


def spec(name: str, **kwargs: Any) -> EnvSpec:
    """What the agents of that env see and can do. One env is made and closed to find out, but for games."""
    if is_game(name):
        return Games.parse(name, kwargs).spec
    vector_env = make(name, 1, **kwargs)
    try:
        return vector_env.spec
    finally:
        vector_env.close()


def rules(name: str, *, agent_ids: bool = False, **kwargs: Any) -> Rules | None:
    """The rules that envs of this name play by, for a search to look ahead in; `None` if the env has none.

    `kwargs` are those of `make`. Rules do not show agents which one they are.
    """
    adapter = adapter_of(name)
    if adapter not in _WITH_RULES or agent_ids:
        return None
    found: Rules | None = importlib.import_module(f"ludus.envs.{adapter}").rules(name, kwargs)
    return found


def without_rules(name: str) -> str:
    """What a message says of an env that has none: why that is, and what to play instead."""
    from ludus.envs.boards.named import BOARD_GAMES

    plain = re.sub(r"_v\d+$", "", name.rpartition(":")[2]).replace("_", "")
    twin = next((game for game in BOARD_GAMES if game.replace("_", "") == plain), None)
    instead = (
        "board:connect_four for example, or a function of yours that returns `core.Rules`"
        if twin is None
        else f"and board:{twin} is the same game"
    )
    return f"{name} has none: only board games have them, {instead}"


def evaluation_args(name: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments to evaluate with, for envs that are trained in with `kwargs`.

    What serves training only is left out: clipped rewards, and lives as episodes. So a return is the game's score.
    """
    adapter = adapter_of(name)
    if adapter not in _CLIPPING:
        return dict(kwargs)
    setting, default = _CLIPPING[adapter]
    in_training = {setting: default, **kwargs}
    return {**kwargs, **{key: False for key in (setting, _EPISODIC_LIFE) if in_training.get(key)}}


def clips_rewards(name: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether envs of this name, made with `kwargs`, cut rewards to [-1, 1]."""
    setting, default = _CLIPPING.get(adapter_of(name), ("", False))
    return bool(kwargs.get(setting, default))


def adapter_of(name: str) -> str:
    """The module of `ludus.envs` that makes envs of this name."""
    if is_game(name):
        return "games"
    before, colon, after = name.rpartition(":")
    if not name or (colon and not (before and after)):
        raise EnvError(f"{name!r} is not the name of an env: write, say, CartPole-v1 or my_module:make_game")
    if before in PREFIXES:
        return PREFIXES[before]
    if colon and (before.endswith(".py") or after.replace(".", "_").isidentifier()):
        return "function"
    return "ale" if after.startswith("ALE/") else "gymnasium"
