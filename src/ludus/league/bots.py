"""Programs that play: `random`, `alphabeta:N`, `minimax`, and functions of the user's as `my_bots.py:make`.

    bot = make_bot("alphabeta:4", "board:connect_four")
    action, _, _ = bot.act(obs, None, first, rng, mask, boards=states)

A function of the user's is called without arguments and returns a `PlayerPolicy`. One that has `needs_boards = True` is
given the states of the boards as well, if the game has rules: `act(..., boards=states)`, a row for each observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus import envs
from ludus.core import Rules
from ludus.data.actions import ActionSpec, Continuous, Discrete, MultiDiscrete
from ludus.data.nest import Nest
from ludus.envs.boards.lookahead import Lookahead
from ludus.envs.boards.perfect_play import PerfectPlay
from ludus.errors import ConfigError
from ludus.league.own_bot import OwnBot
from ludus.league.players import BOTS, PlayerPolicy
from ludus.spelling import nearest

__all__ = ["LookaheadBot", "MoveValues", "RandomBot", "is_bot", "make_bot"]

_DEPTH = 4
_MAX_DEPTH = 12  # beyond it a move takes minutes even in small games


def is_bot(name: str) -> bool:
    """Whether `make_bot` knows this name, or would import it."""
    return name.partition(":")[0] in BOTS or ":" in name


def make_bot(model: str, game: str, game_args: Mapping[str, Any] | None = None) -> PlayerPolicy:
    """Raises `ConfigError` for a name that is no bot's, or that cannot play this game."""
    name, colon, setting = model.partition(":")
    match name:
        case "alphabeta":
            depth = _depth(model, setting if colon else str(_DEPTH))
            return LookaheadBot(Lookahead(_rules(model, game, game_args), depth=depth))
        case "random" | "minimax" if colon:
            raise ConfigError(f"the bot {name!r} has no settings: write {name}, not {model!r}")
        case "minimax":
            return LookaheadBot(PerfectPlay(_rules(model, game, game_args)))
        case "random":
            return RandomBot(envs.spec(game, **(game_args or {})).action)
    if colon:
        return OwnBot(model, envs.spec(game, **(game_args or {})).action)
    raise ConfigError(f"there is no bot {model!r}. {nearest(model, BOTS)} Or one of your own, as my_bots.py:make")


def _depth(model: str, setting: str) -> int:
    if not setting.isdecimal() or not 1 <= int(setting) <= _MAX_DEPTH:
        raise ConfigError(
            f"the bot {model!r}: after the colon comes how many moves it looks ahead, 1 to {_MAX_DEPTH}, as in "
            "alphabeta:4"
        )
    return int(setting)


def _rules(model: str, game: str, game_args: Mapping[str, Any] | None) -> Rules:
    rules = envs.rules(game, **(game_args or {}))
    if rules is None:
        raise ConfigError(
            f"the bot {model!r} looks ahead by the rules of a game, and {envs.without_rules(game)}. Take another bot "
            "here, such as random"
        )
    return rules


class RandomBot:
    """Any legal action, all alike; of an action without bounds, from a standard normal distribution."""

    state_spec: Nest = None

    def __init__(self, action: ActionSpec) -> None:
        self._action = action

    def act(
        self,
        obs: Nest,
        state: Nest,
        first: NDArray[np.bool_],
        rng: np.random.Generator,
        mask: NDArray[np.bool_] | None = None,
        *,
        greedy: bool = False,
    ) -> tuple[NDArray[Any], NDArray[np.float32], Nest]:
        num_rows = len(first)
        match self._action:
            case Discrete(num_choices=num):
                action = _any_of(num_rows, num, rng, mask)
            case MultiDiscrete(num_choices=nums):
                ends = np.cumsum(nums)
                masks = [
                    None if mask is None else mask[:, end - num : end] for num, end in zip(nums, ends, strict=True)
                ]
                columns = [_any_of(num_rows, num, rng, each) for num, each in zip(nums, masks, strict=True)]
                action = np.stack(columns, 1)
            case Continuous(low=low, high=high):
                has_bounds = np.isfinite(low) & np.isfinite(high)
                least, most = np.where(has_bounds, low, 0.0), np.where(has_bounds, high, 1.0)
                within = rng.uniform(least, most, (num_rows, len(low)))
                beyond = np.clip(rng.standard_normal((num_rows, len(low))), low, high)
                action = np.where(has_bounds, within, beyond).astype(np.float32)
        return action, np.zeros(num_rows, np.float32), None


def _any_of(
    num_rows: int, num_choices: int, rng: np.random.Generator, mask: NDArray[np.bool_] | None
) -> NDArray[np.int64]:
    drawn = rng.random((num_rows, num_choices))
    if mask is not None:
        drawn[~mask] = -1.0
    chosen: NDArray[np.int64] = drawn.argmax(1)
    return chosen


class MoveValues(Protocol):
    """What rates moves: a `Lookahead`, or `PerfectPlay`."""

    def values(self, state: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """`[N, actions]` for the player to move; -inf where a move is illegal."""
        ...


class LookaheadBot:
    """The best move; of several that are equally good any one, or the first if `greedy`."""

    state_spec: Nest = None
    needs_boards = True

    def __init__(self, search: MoveValues) -> None:
        self.search = search

    def act(
        self,
        obs: Nest,
        state: Nest,
        first: NDArray[np.bool_],
        rng: np.random.Generator,
        mask: NDArray[np.bool_] | None = None,
        *,
        greedy: bool = False,
        boards: NDArray[np.int64] | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32], Nest]:
        if boards is None:
            raise ConfigError("this bot looks ahead on the board: give it the states, as act(..., boards=states)")
        values = self.search.values(boards)
        is_best = values == values.max(1, keepdims=True)
        if greedy:
            action = is_best.argmax(1)
        else:
            action = np.where(is_best, rng.random(values.shape), -1.0).argmax(1)
        return action, np.zeros(len(boards), np.float32), None
