"""How strong each player is, as one number with its uncertainty.

    ratings = Ratings()
    ratings.update(("main", "rock"), (1.0, -1.0))      # players and scores by side
    ratings.of("main").interval()

    elo(payoff, ["main", "rock"])                      # of all results at once: Bradley and Terry's model

`Ratings` follow players that learn: each match moves those who played it. `elo` takes players as they are, and is the
one to read after a round-robin. Neither can say that rock loses to paper: see `solvers` for games that go in circles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.errors import DataError, MissingExtra

if TYPE_CHECKING:
    from openskill.models import PlackettLuce

__all__ = ["Rating", "Ratings", "elo"]

_POINTS = 400.0 / math.log(10.0)  # Elo's: 400 of them are odds of ten to one
_PRIOR_DRAWS = 1.0  # against an average player: who won all matches would have no finite rating
_MAX_STEPS = 100


class HasTable(Protocol):
    """Results of a population: a `Payoff`, or a `RoundRobin`."""

    def table(self, players: Sequence[str]) -> NDArray[np.float64]:
        """`[player, opponent]`: wins, draws and losses."""
        ...


class Rating(NamedTuple):
    mean: float
    std: float

    def interval(self, z: float = 1.96) -> tuple[float, float]:
        return self.mean - z * self.std, self.mean + z * self.std


class Ratings:
    """By the model of Plackett and Luce, for matches of any number of players: the library OpenSkill's.

    A new player has a mean of 25 and a std of 8.33, or the mean of its parent.
    """

    def __init__(self) -> None:
        self._model = _model()
        new = self._model.rating()
        self._new = Rating(new.mu, new.sigma)
        self._ratings: dict[str, Rating] = {}

    def add(self, player: str, *, parent: str | None = None) -> None:
        """A snapshot begins where its parent is, with a parent's uncertainty."""
        if parent is not None and parent in self._ratings:
            self._ratings[player] = self._ratings[parent]

    def of(self, player: str) -> Rating:
        return self._ratings.get(player, self._new)

    def update(self, players: Sequence[str], scores: Sequence[float]) -> None:
        """By one match. One that holds several sides gets what each of them gains or loses."""
        if len(players) != len(scores) or not np.isfinite(scores).all():
            raise DataError(f"players {list(players)} with scores {list(scores)}: nothing was rated. Give one each")
        if len(set(players)) < 2:
            return
        before = [self.of(player) for player in players]
        teams = [[self._model.create_rating([each.mean, each.std])] for each in before]
        for player, was, (rated,) in zip(
            players, before, self._model.rate(teams, scores=[float(score) for score in scores]), strict=True
        ):
            now = self.of(player)
            self._ratings[player] = Rating(now.mean + rated.mu - was.mean, now.std * rated.sigma / was.std)

    def remove(self, player: str) -> None:
        self._ratings.pop(player, None)

    def save(self) -> Nest:
        """For the codec."""
        return {player: list(rating) for player, rating in self._ratings.items()}

    def restore(self, saved: Nest) -> None:
        self._ratings = {player: Rating(*rating) for player, rating in saved.items()}


def _model() -> PlackettLuce:
    try:
        from openskill.models import PlackettLuce
    except ImportError:
        raise MissingExtra("openskill", extra="league") from None
    return PlackettLuce()


def elo(payoff: HasTable, players: Sequence[str]) -> dict[str, Rating]:
    """The most likely ratings, whose mean is 0, with their standard errors. https://doi.org/10.2307/2334029

    A difference of d points is a win rate of 1 / (1 + 10^(-d/400)). Each player is given one draw against the average,
    so that nobody's rating is infinite.
    """
    num = len(players)
    if not num:
        return {}
    table = payoff.table(players)
    games, points = table.sum(-1), table[..., 0] + 0.5 * table[..., 1]
    strength = np.zeros(num)
    for _ in range(_MAX_STEPS):  # Newton's: the likelihood has one maximum
        chance = 1.0 / (1.0 + np.exp(strength[None] - strength[:, None]))
        alone = 1.0 / (1.0 + np.exp(-strength))
        gradient = (points - games * chance).sum(1) + _PRIOR_DRAWS * (0.5 - alone)
        weight = games * chance * (1.0 - chance)
        information: Any = np.diag(weight.sum(1) + _PRIOR_DRAWS * alone * (1.0 - alone)) - weight
        step = np.linalg.solve(information, gradient)
        step *= min(1.0, 2.0 / max(1e-12, float(np.abs(step).max())))  # far from it a whole step goes too far
        strength += step
        if float(np.abs(step).max()) < 1e-9:
            break
    centre = np.eye(num) - 1.0 / num
    variance = np.diag(centre @ np.linalg.inv(information) @ centre)
    strength -= strength.mean()
    return {
        player: Rating(float(strength[i]) * _POINTS, math.sqrt(max(0.0, float(variance[i]))) * _POINTS)
        for i, player in enumerate(players)
    }
