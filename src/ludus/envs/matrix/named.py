"""Matrix games by name: zero-sum ones of one move, and those of a team.

Zero-sum: `matrix:rps`, `matrix:biased_rps`, `matrix:disc`, and `matrix:own` with a `payoff`. Of a team:
`matrix:two_step`, `matrix:climbing`, and `matrix:penalty` with a `penalty`.
"""

from __future__ import annotations

from typing import Any

from ludus.core import VectorEnv
from ludus.envs.matrix import team_games
from ludus.envs.matrix.games import BIASED_RPS, RPS, Disc, OneMoveGame, PayoffMatrix, read_payoff
from ludus.envs.matrix.team_vector_env import TeamVectorEnv
from ludus.envs.matrix.vector_env import OneMoveVectorEnv
from ludus.errors import EnvError
from ludus.spelling import nearest

__all__ = ["game_of", "make"]

_TAKES: dict[str, tuple[str, ...]] = {
    "rps": (),
    "biased_rps": (),
    "disc": (),
    "own": ("payoff",),
    "two_step": (),
    "climbing": (),
    "penalty": ("penalty",),
}
"""The games and their arguments."""


def make(name: str, num_envs: int, *, num_threads: int, kwargs: dict[str, Any]) -> VectorEnv:
    del num_threads  # all games are played at once
    game = game_of(name, kwargs)
    if isinstance(game, team_games.TeamGame):
        return TeamVectorEnv(name, game, num_envs)
    return OneMoveVectorEnv(name, game, num_envs)


def game_of(name: str, kwargs: dict[str, Any]) -> OneMoveGame | team_games.TeamGame:
    """Raises `EnvError` if there is none of that name, or if it takes no such arguments."""
    game = name.rpartition(":")[2]
    if game not in _TAKES:
        raise EnvError(f"there is no matrix game {game!r}. {nearest(game, _TAKES)}")
    takes = _TAKES[game]
    for setting in kwargs:
        if setting not in takes:
            what = nearest(setting, takes) if takes else "It takes no arguments; matrix:own takes a payoff"
            raise EnvError(f"{name} takes no {setting!r}. {what}")
    match game:
        case "own":
            if "payoff" not in kwargs:
                raise EnvError(f"{name} needs a payoff: rows of numbers, or a JSON file of them")
            return read_payoff(kwargs["payoff"])
        case "disc":
            return Disc()
        case "two_step":
            return team_games.two_step()
        case "climbing":
            return team_games.climbing()
        case "penalty":
            return team_games.penalty(kwargs.get("penalty", -100.0))
    return PayoffMatrix(RPS if game == "rps" else BIASED_RPS)
