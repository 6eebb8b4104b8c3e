"""An oracle that computes: learners whose update is the exact best response to the league's mixture.

    player = oracle.learner("main")
    player.update()                                    # one step: one best response
    player.weights()                                   # {"table": ...}

What such a learner answers follows from the league alone, so it has no checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.envs.openspiel.named import tree_of
from ludus.league.config import LeagueRunConfig
from ludus.league.match_book import LeagueCalls
from ludus.league.players import player_of
from ludus.league.psro.tabular_game import TabularGame
from ludus.league.psro.tabular_policy import TABLE, TabularSeats
from ludus.league.seats import ReadPool

__all__ = ["ExactEvaluations", "ExactOracle", "ExactPlayer", "MixtureCalls", "exact_game", "exact_seats"]

_MOST_MATCHES = 64  # that are asked for at once


class MixtureCalls(LeagueCalls, Protocol):
    """What is asked of the league here."""

    def mixture(self) -> dict[str, float]: ...

    def players(self) -> list[Nest]: ...

    def num_missing_evaluations(self) -> int: ...


class ExactOracle:
    """For small games of OpenSpiel."""

    turn_updates = 1  # a second response to the same mixture is the same

    def __init__(self, config: LeagueRunConfig, league: MixtureCalls, pool: ReadPool, *, owner: str = "") -> None:
        self.seats = exact_seats(config, pool)
        self._league = league
        self._owner = owner

    def learner(self, name: str) -> ExactPlayer:
        return ExactPlayer(name, self.seats.game, self._league, self.seats)

    def evaluations(self) -> ExactEvaluations:
        return ExactEvaluations(self.seats.game, self._league, self.seats, owner=self._owner)


def exact_game(config: LeagueRunConfig) -> TabularGame:
    """Raises `EnvError` if it is too large, `ConfigError` if it has no exact answers."""
    return TabularGame(tree_of(config.game, dict(config.training.env_args)))


def exact_seats(config: LeagueRunConfig, pool: ReadPool) -> TabularSeats:
    """Raises as `exact_game` does."""
    return TabularSeats(pool, exact_game(config), config.game, dict(config.training.env_args))


class ExactPlayer:
    """`num_steps` counts best responses."""

    mean_return: float | None = None  # it plays no games
    mean_length: float | None = None
    num_games = 0
    lag: tuple[float, float] | None = None

    def __init__(self, name: str, game: TabularGame, league: MixtureCalls, seats: TabularSeats) -> None:
        self.name = name
        self.num_steps = 0
        self.num_resets = 0
        self.seconds = {"play": 0.0, "train": 0.0}
        self.metrics: dict[str, float] = {}
        self._game = game
        self._league = league
        self._seats = seats
        self._table = game.uniform()

    def update(self, *, progress: float = 0.0) -> int:
        """Respond to the mixture; while there is none, to a player that does anything. It has no schedule."""
        began = time.perf_counter()
        players = {each["name"]: player_of(each) for each in self._league.players()}
        mixture = {name: share for name, share in self._league.mixture().items() if name in players}
        tables = [self._seats.table(players[name]) for name in mixture]
        average = self._game.average(tables, list(mixture.values()))
        self._table = self._game.best_response(average)
        self.num_steps += 1
        self.metrics = {"nash_conv": self._game.nash_conv(average)}
        self.seconds["train"] += time.perf_counter() - began
        return 1

    def begin_again(self, num_resets: int) -> None:
        """It begins with every response anyway."""
        self.num_resets = num_resets

    def weights(self) -> dict[str, Any]:
        return {TABLE: self._table}

    def checkpoint(self) -> None:
        pass

    def restore(self) -> bool:
        return True

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        self._table = np.asarray(weights[TABLE], np.float64)

    def abandon(self) -> None:
        pass

    def close(self) -> None:
        pass


class ExactEvaluations:
    """Each of the pair that has met least, by the expected score instead of games; either side is as likely."""

    def __init__(self, game: TabularGame, league: MixtureCalls, seats: TabularSeats, *, owner: str = "") -> None:
        self.num_games = 0
        self.seconds = 0.0
        self._game = game
        self._league = league
        self._seats = seats
        self._owner = owner

    def play(self, num_steps: int = 1) -> None:
        """Those that the league's mixture lacks; there are no steps."""
        del num_steps
        began = time.perf_counter()
        num = min(_MOST_MATCHES, self._league.num_missing_evaluations())
        if num:
            matches = self._league.request_evaluations(num, None, self._owner)
            self._league.report_series([[each["id"], [self._scores(each)]] for each in matches])
            self.num_games += len(matches)
        self.seconds += time.perf_counter() - began

    def abandon(self) -> None:
        pass  # none is ever under way

    def _scores(self, match: Nest) -> list[float]:
        one, two = (self._seats.table(player_of(each)) for each in match["players"])
        value = self._game.value(one, two)
        return [value, -value]

    def close(self) -> None:
        pass
