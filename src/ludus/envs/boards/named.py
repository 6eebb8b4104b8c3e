"""The board games that are here: `board:connect_four`, `board:tic_tac_toe`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.core import Rules, VectorEnv
from ludus.envs.boards.connect_four import ConnectFour
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.envs.boards.vector_env import BoardVectorEnv
from ludus.errors import EnvError
from ludus.spelling import nearest

__all__ = ["BOARD_GAMES", "make", "rules"]

BOARD_GAMES: dict[str, Callable[..., Rules]] = {game.name: game for game in (ConnectFour, TicTacToe)}

_OF_RULES = {ConnectFour.name: ("threats",)}
"""What they take, where it is not the env's."""


def make(name: str, num_envs: int, *, num_threads: int, kwargs: dict[str, Any]) -> VectorEnv:
    del num_threads  # all boards are stepped at once
    own = {setting: value for setting, value in kwargs.items() if setting not in _OF_RULES.get(_game(name), ())}
    return BoardVectorEnv(name, rules(name, kwargs), num_envs, **own)


def rules(name: str, kwargs: dict[str, Any]) -> Rules:
    game = _game(name)
    if game not in BOARD_GAMES:
        raise EnvError(f"there is no board game {game!r}. {nearest(game, BOARD_GAMES)}")
    of_rules = _OF_RULES.get(game, ())
    for setting, value in kwargs.items():
        if setting not in ("random_moves", *of_rules):
            raise EnvError(f"{name} takes no {setting!r}. {nearest(setting, ['random_moves', *of_rules])}")
        if setting in of_rules and type(value) is not bool:
            raise EnvError(f"{name}: {setting}={value!r} must be true or false")
    return BOARD_GAMES[game](**{setting: kwargs[setting] for setting in of_rules if setting in kwargs})


def _game(name: str) -> str:
    return name.rpartition(":")[2]
