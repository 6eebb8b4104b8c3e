"""Who learns in a league, how its players are made to play, and who plays its evaluations: what a training is made of.

    oracle = make_oracle(config, folder, league, pool)
    learner = oracle.learner("main")
    learner.update()
    oracle.evaluations().play()

There are two: networks that learn by playing, and, for small games, exact best responses (`psro/exact_oracle.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from ludus import envs
from ludus.experiment import wiring
from ludus.league import code_bots
from ludus.league.config import LeagueRunConfig
from ludus.league.distant_collectors import DistantCollectors
from ludus.league.evaluations import Evaluations
from ludus.league.folder import FOLDER
from ludus.league.imported_networks import ImportedNetworks
from ludus.league.learning import LearningPlayer
from ludus.league.learning_parts import LearningParts
from ludus.league.psro.exact_oracle import ExactOracle, MixtureCalls, exact_seats
from ludus.league.seats import GameSeats, ReadPool, Seats, search_with

__all__ = ["LearningOracle", "Oracle", "PlaysEvaluations", "TrainingPlayer", "make_oracle", "make_seats"]


class TrainingPlayer(Protocol):
    """A `LearningPlayer`, or what stands in its place."""

    name: str
    num_steps: int
    seconds: dict[str, float]  # by part of an update
    metrics: dict[str, float]
    lag: tuple[float, float] | None  # of what it learnt from last, in versions: mean and largest

    @property
    def num_resets(self) -> int: ...

    @property
    def num_games(self) -> int: ...

    @property
    def mean_return(self) -> float | None: ...

    @property
    def mean_length(self) -> float | None: ...

    def update(self, *, progress: float = 0.0) -> int: ...

    def weights(self) -> dict[str, Any]: ...

    def begin_again(self, num_resets: int) -> None: ...

    def checkpoint(self) -> None: ...

    def restore(self) -> bool: ...

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None: ...

    def abandon(self) -> None: ...

    def close(self) -> None: ...


class PlaysEvaluations(Protocol):
    """`Evaluations`, or what stands in their place."""

    seconds: float

    @property
    def num_games(self) -> int: ...

    def play(self, num_steps: int = ...) -> None: ...

    def abandon(self) -> None: ...

    def close(self) -> None: ...


class Oracle(Protocol):
    """`turn_updates`: how many updates of a learner make sense before the league has heard of the first."""

    turn_updates: int

    @property
    def seats(self) -> GameSeats: ...

    def learner(self, name: str) -> TrainingPlayer: ...

    def evaluations(self) -> PlaysEvaluations: ...


class LearningOracle:
    """Networks, by the algorithm of the run."""

    def __init__(
        self,
        config: LeagueRunConfig,
        folder: Path,
        league: MixtureCalls,
        pool: ReadPool,
        *,
        owner: str = "",
        num_starts: int = 0,
        distant: DistantCollectors | None = None,
    ) -> None:
        training = config.training
        self.seats = make_seats(config, pool)
        self.turn_updates = config.league.turn_updates
        self._parts = LearningParts(
            config=training,
            env=envs.spec(training.train.env, **training.env_args),
            league=league,
            seats=self.seats,
            folder=folder,
            owner=owner,
            num_starts=num_starts,
            games_per_match=config.league.games_per_match,
            search=config.league.search,
            past_segments=config.league.past_segments,
            distant=distant,
        )
        self._num_evaluations = 0

    def learner(self, name: str) -> LearningPlayer:
        return LearningPlayer(name, self._parts)

    def evaluations(self) -> Evaluations:
        self._num_evaluations += 1
        return Evaluations(self._parts, seed=self._parts.seed("evaluations", self._num_evaluations))


def make_oracle(
    config: LeagueRunConfig,
    folder: Path,
    league: MixtureCalls,
    pool: ReadPool,
    *,
    owner: str = "",
    num_starts: int = 0,
    distant: DistantCollectors | None = None,
) -> Oracle:
    """`num_starts` and `distant` are those of `LearningParts`."""
    if config.league.oracle == "exact":
        return ExactOracle(config, league, pool, owner=owner)
    return LearningOracle(config, folder, league, pool, owner=owner, num_starts=num_starts, distant=distant)


def make_seats(config: LeagueRunConfig, pool: ReadPool) -> GameSeats:
    """How players of this league are made to play."""
    if config.league.oracle == "exact":
        return exact_seats(config, pool)
    training = config.training
    env = envs.spec(training.train.env, **training.env_args)
    policy = wiring.make_policy_spec(training, env)
    seats = Seats(pool, policy, config.game, training.env_args, search=search_with(config.game, training.env_args))
    if config.folder is not None:
        seats.imported = ImportedNetworks(config.folder).open
        seats.check_bot = functools.partial(code_bots.expect_allowed, config.folder / FOLDER)
    return seats
