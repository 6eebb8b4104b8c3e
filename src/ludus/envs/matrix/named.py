"""Games of one move by name: `matrix:rps`, `matrix:biased_rps`, `matrix:disc`, and `matrix:own` with a `payoff`."""

from __future__ import annotations

from typing import Any

from ludus.core import VectorEnv
from ludus.envs.matrix.games import BIASED_RPS, RPS, Disc, OneMoveGame, PayoffMatrix, read_payoff
from ludus.envs.matrix.vector_env import OneMoveVectorEnv
from ludus.errors import EnvError
from ludus.spelling import nearest

__all__ = ["game_of", "make"]

_NAMES = ("rps", "biased_rps", "disc", "own")


def make(name: str, num_envs: int, *, num_threads: int, kwargs: dict[str, Any]) -> VectorEnv:
    del num_threads  # all games are played at once
    return OneMoveVectorEnv(name, game_of(name, kwargs), num_envs)


def game_of(name: str, kwargs: dict[str, Any]) -> OneMoveGame:
    """Raises `EnvError` if there is none of that name, or if it takes no such arguments."""
    game = name.rpartition(":")[2]
    if game not in _NAMES:
        raise EnvError(f"there is no matrix game {game!r}. {nearest(game, _NAMES)}")
    takes = ["payoff"] if game == "own" else []
    for setting in kwargs:
        if setting not in takes:
            what = f"{nearest(setting, takes)}" if takes else "It takes no arguments; matrix:own takes a payoff"
            raise EnvError(f"{name} takes no {setting!r}. {what}")
    if game == "own":
        if "payoff" not in kwargs:
            raise EnvError(f"{name} needs a payoff: rows of numbers, or a JSON file of them")
        return read_payoff(kwargs["payoff"])
    return Disc() if game == "disc" else PayoffMatrix(RPS if game == "rps" else BIASED_RPS)
