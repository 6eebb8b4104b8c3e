"""Who beats whom: results of matches, by players and by the sides they had.

    payoff = Payoff(decay=0.99)
    payoff.begin("match-1", ("main", "rock"))          # by side; the match is in flight
    payoff.end("match-1", (1.0, -1.0))                 # scores by side: main has won
    payoff.win_rate("main", "rock")                    # 1.0; 0.5 for those who never met

A side is what a player, or a team, is in a game: white, or the one that moves first. A match counts once, however often
its end is reported; an aborted one does not count. In a match of more than two players every pair of them has a result:
the higher score has won.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.errors import ConfigError, DataError

__all__ = ["Payoff", "Record"]

ANY_SIDE = -1


class Record(NamedTuple):
    """Results of one player against another. With a decay, old matches count less than one."""

    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0

    @property
    def games(self) -> float:
        return self.wins + self.draws + self.losses

    @property
    def win_rate(self) -> float:
        """Draws count half; 0.5 where there is no game."""
        return (self.wins + 0.5 * self.draws) / self.games if self.games else 0.5

    def interval(self, z: float = 1.96) -> tuple[float, float]:
        """Wilson's score interval of the win rate; (0, 1) where there is no game."""
        n = self.games
        if not n:
            return 0.0, 1.0
        rate, square = self.win_rate, z * z
        centre = (rate + square / (2.0 * n)) / (1.0 + square / n)
        half = z / (1.0 + square / n) * math.sqrt(rate * (1.0 - rate) / n + square / (4.0 * n * n))
        return max(0.0, centre - half), min(1.0, centre + half)


class Payoff:
    """`decay`: what an earlier match of the same players and sides counts after one more of them.

    `min_games`: win rates of fewer are taken to be 0.5, because they say too little. Everything here is data: nothing
    waits, nothing is random.
    """

    def __init__(self, *, decay: float = 1.0, min_games: float = 0.0) -> None:
        if not 0.0 < decay <= 1.0:
            raise ConfigError(f"decay={decay}: it is above 0, and at most 1")
        if min_games < 0.0:
            raise ConfigError(f"min_games={min_games}: it is 0 or more")
        self.decay = decay
        self.min_games = min_games
        self._counts: dict[tuple[str, str], dict[int, list[float]]] = {}  # of a player and an opponent, by its side
        self._in_flight: dict[str, tuple[str, ...]] = {}

    # --- matches

    def begin(self, match: str, players: Sequence[str]) -> None:
        """A match is in flight from here on; `players` are by side, and one may have several sides."""
        if match in self._in_flight:
            raise DataError(f"the match {match!r} is in flight already; nothing was changed")
        if not players:
            raise DataError(f"the match {match!r} has no players; nothing was changed")
        self._in_flight[match] = tuple(players)

    def end(self, match: str, scores: Sequence[float]) -> bool:
        """Count its result. False, and nothing is counted, where it is not in flight: it has ended before."""
        players = self._in_flight.get(match)
        if players is None:
            return False
        if len(scores) != len(players) or not np.isfinite(scores).all():
            raise DataError(
                f"the match {match!r} has {len(players)} players, and its scores are {list(scores)}; nothing was "
                "counted. Report one finite number for each side"
            )
        del self._in_flight[match]
        for side, (player, score) in enumerate(zip(players, scores, strict=True)):
            for other_side, (other, other_score) in enumerate(zip(players, scores, strict=True)):
                if other_side != side and other != player:
                    self._count(player, other, side, score - other_score)
        return True

    def abort(self, match: str) -> bool:
        """It had no result. False where it is not in flight."""
        return self._in_flight.pop(match, None) is not None

    def _count(self, player: str, other: str, side: int, margin: float) -> None:
        counts = self._counts.setdefault((player, other), {}).setdefault(side, [0.0, 0.0, 0.0])
        if self.decay < 1.0:
            counts[:] = [count * self.decay for count in counts]
        counts[0 if margin > 0.0 else 1 if margin == 0.0 else 2] += 1.0

    def remove(self, player: str) -> None:
        """Forget a player, its results and those of others against it. Its matches in flight are aborted."""
        self._counts = {pair: by_side for pair, by_side in self._counts.items() if player not in pair}
        self._in_flight = {match: players for match, players in self._in_flight.items() if player not in players}

    # --- questions

    def record(self, player: str, other: str, side: int = ANY_SIDE) -> Record:
        """Of `player` against `other`, in one side or in all."""
        by_side = self._counts.get((player, other), {})
        if side != ANY_SIDE:
            return Record(*by_side.get(side, ()))
        return Record(*(sum(counts) for counts in zip(*by_side.values(), strict=True)))

    def win_rate(self, player: str, other: str, side: int = ANY_SIDE) -> float:
        """0.5 where they met less than `min_games` times, or never, and of a player against itself."""
        record = self.record(player, other, side)
        return record.win_rate if record.games >= self.min_games else 0.5

    def win_rates(self, player: str, others: Iterable[str], side: int = ANY_SIDE) -> NDArray[np.float64]:
        """Against each of `others`."""
        return np.array([self.win_rate(player, other, side) for other in others])

    def matrix(self, players: Sequence[str]) -> NDArray[np.float64]:
        """`[player, opponent]`: win rates over all sides; 0.5 on the diagonal."""
        return np.array([self.win_rates(player, players) for player in players]).reshape(len(players), -1)

    def games(self, player: str, other: str) -> float:
        """That ended, and, each as one, those in flight."""
        flying = sum(1 for players in self._in_flight.values() if player in players and other in players)
        return self.record(player, other).games + flying

    @property
    def in_flight(self) -> dict[str, tuple[str, ...]]:
        """Players by side, of each match that began and has not ended."""
        return dict(self._in_flight)

    # --- checkpoints

    def save(self) -> Nest:
        """For the codec."""
        counts = [[*pair, side, *row] for pair, by_side in self._counts.items() for side, row in by_side.items()]
        return {"counts": counts, "in_flight": {match: list(players) for match, players in self._in_flight.items()}}

    def restore(self, saved: Nest) -> None:
        self._counts = {}
        for player, other, side, *row in saved["counts"]:
            self._counts.setdefault((player, other), {})[int(side)] = [float(count) for count in row]
        self._in_flight = {match: tuple(players) for match, players in saved["in_flight"].items()}
