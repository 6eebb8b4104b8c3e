"""Games of OpenSpiel by their names: `openspiel:kuhn_poker`, `openspiel:leduc_poker`, `openspiel:tic_tac_toe`, …"""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np

from ludus.core import EnvSpec, VectorEnv
from ludus.data.actions import Discrete
from ludus.data.spec import ArraySpec
from ludus.envs.loop import LoopVectorEnv
from ludus.envs.openspiel import library
from ludus.envs.openspiel.state_env import StateEnv
from ludus.envs.openspiel.tree import GameTree, grow
from ludus.envs.openspiel.tree_env import TreeVectorEnv
from ludus.errors import EnvError

__all__ = ["make", "spec_of", "tree_of"]


def make(name: str, num_envs: int, *, num_threads: int, kwargs: dict[str, Any]) -> VectorEnv:
    """`kwargs` are the game's parameters."""
    del num_threads  # tables are indexed for all at once, states go one after the other
    game, tree = _loaded(name, _key(name, kwargs))
    spec = spec_of(name, game)
    if tree is not None:
        return TreeVectorEnv(spec, tree, num_envs)
    return LoopVectorEnv(lambda: StateEnv(spec, game), num_envs)


def tree_of(name: str, kwargs: dict[str, Any]) -> GameTree:
    """The tables of a small game. Raises `EnvError` for one that has too many histories."""
    _, tree = _loaded(name, _key(name, kwargs))
    if tree is None:
        raise EnvError(f"{name} is too large for tables: nothing can be computed exactly in it. Choose a smaller game")
    return tree


def spec_of(name: str, game: Any) -> EnvSpec:
    return EnvSpec(
        name=name,
        obs=ArraySpec(library.tensor_shape(game), np.float32),
        action=Discrete(game.num_distinct_actions()),
        agents=tuple(f"player_{player}" for player in range(game.num_players())),
        has_mask=True,
    )


def _key(name: str, kwargs: dict[str, Any]) -> str:
    try:
        return json.dumps(kwargs, sort_keys=True)
    except TypeError as error:
        raise EnvError(f"{name}: parameters of a game are numbers, words and truth values: {error}") from None


@functools.lru_cache(maxsize=8)
def _loaded(name: str, parameters: str) -> tuple[Any, GameTree | None]:
    """A game and its tables, which all groups of envs share."""
    game = library.load(name, json.loads(parameters))
    return game, grow(game)
