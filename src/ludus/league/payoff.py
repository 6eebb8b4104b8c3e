"""Who beats whom: results of matches, by players and by the sides they had.

    payoff = Payoff(decay=0.99)
    payoff.begin("match-1", ("main", "rock"))          # by side; the match is in flight
    payoff.end("match-1", (1.0, -1.0))                 # scores by side: main has won
    payoff.win_rate("main", "rock")                    # 1.0; 0.5 for those who never met
    payoff.mean_score("main", "rock")                  # 1.0; 0.0 for those who never met

A side is what a player, or a team, is in a game: white, or the one that moves first. A match counts once, however often
its end is reported; an aborted one does not count. In a match of more than two players every pair of them has a result:
the higher score has won.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.errors import ConfigError, DataError

__all__ = ["ANY_SIDE", "Payoff", "Record"]

ANY_SIDE = -1
_SCORE = 3  # place in a row of counts


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


_NO_GAMES = Record()


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
        # Of a player and an opponent, by its side: wins, draws, losses, and the sum of its scores.
        self._counts: dict[tuple[str, str], dict[int, list[float]]] = {}
        self._records: dict[tuple[str, str], Record] = {}  # over all sides, of those that were asked for
        self._num_counted: Counter[tuple[str, str]] = Counter()  # never less, whatever decays
        self._num_restored = 0
        self._in_flight: dict[str, tuple[str, ...]] = {}
        self._flying: Counter[frozenset[str]] = Counter()  # of two players: their matches in flight

    # --- matches

    def begin(self, match: str, players: Sequence[str]) -> None:
        """A match is in flight from here on; `players` are by side, and one may have several sides."""
        if match in self._in_flight:
            raise DataError(f"the match {match!r} is in flight already; nothing was changed")
        if not players:
            raise DataError(f"the match {match!r} has no players; nothing was changed")
        self._in_flight[match] = tuple(players)
        self._flying.update(_pairs(players))

    def end(self, match: str, scores: Sequence[float]) -> bool:
        """`end_series` of one game."""
        return self.end_series(match, [scores])

    def end_series(self, match: str, games: Sequence[Sequence[float]]) -> bool:
        """Count the results of its games. False, and nothing is counted, where it is not in flight: it has ended."""
        players = self._in_flight.get(match)
        if players is None:
            return False
        self.check_series(match, games)
        self.abort(match)
        pairs = [
            (player, other, side, other_side)
            for side, player in enumerate(players)
            for other_side, other in enumerate(players)
            if other_side != side and other != player
        ]
        for scores in games if pairs else ():
            for player, other, side, other_side in pairs:
                self._count(player, other, side, scores[side], scores[other_side])
        return True

    def check_series(self, match: str, games: Sequence[Sequence[float]]) -> None:
        """Raise `DataError` if it is in flight and these cannot be its results."""
        players = self._in_flight.get(match)
        for scores in games if players is not None else ():
            if len(scores) != len(players or ()) or not all(math.isfinite(score) for score in scores):
                raise DataError(
                    f"the match {match!r} has {len(players or ())} players, and its scores are {list(scores)}; nothing "
                    "was counted. Report one finite number for each side"
                )

    def abort(self, match: str) -> bool:
        """It had no result. False where it is not in flight."""
        players = self._in_flight.pop(match, None)
        if players is None:
            return False
        for pair in _pairs(players):
            self._flying[pair] -= 1
            if not self._flying[pair]:
                del self._flying[pair]
        return True

    def _count(self, player: str, other: str, side: int, score: float, other_score: float) -> None:
        counts = self._counts.setdefault((player, other), {}).setdefault(side, [0.0, 0.0, 0.0, 0.0])
        if self.decay < 1.0:
            counts[:] = [count * self.decay for count in counts]
        counts[0 if score > other_score else 1 if score == other_score else 2] += 1.0
        counts[_SCORE] += score
        self._num_counted[player, other] += 1
        self._records.pop((player, other), None)

    def remove(self, player: str) -> None:
        """Forget a player, its results and those of others against it. Its matches in flight are aborted."""
        self._counts = {pair: by_side for pair, by_side in self._counts.items() if player not in pair}
        self._records.clear()
        for match in [match for match, players in self._in_flight.items() if player in players]:
            self.abort(match)

    # --- questions

    def record(self, player: str, other: str, side: int = ANY_SIDE) -> Record:
        """Of `player` against `other`, in one side or in all."""
        pair = (player, other)
        if side != ANY_SIDE:
            return Record(*self._counts.get(pair, {}).get(side, ())[:_SCORE])
        found = self._records.get(pair)
        if found is None:
            if pair not in self._counts:
                return _NO_GAMES
            sums = [sum(counts) for counts in zip(*self._counts[pair].values(), strict=True)]
            found = self._records[pair] = Record(*sums[:_SCORE])
        return found

    def win_rate(self, player: str, other: str, side: int = ANY_SIDE) -> float:
        """0.5 where they met less than `min_games` times, or never, and of a player against itself."""
        record = self.record(player, other, side)
        return record.win_rate if record.games >= self.min_games else 0.5

    def win_rates(self, player: str, others: Iterable[str], side: int = ANY_SIDE) -> NDArray[np.float64]:
        """Against each of `others`."""
        return np.array([self.win_rate(player, other, side) for other in others])

    def matrix(self, players: Sequence[str]) -> NDArray[np.float64]:
        """`[player, opponent]`: win rates over all sides; 0.5 on the diagonal."""
        return self.results(players)[0]

    def results(self, players: Sequence[str], side: int = ANY_SIDE) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`[player, opponent]`: win rates and games of the player in one side, or over all; 0.5 on the diagonal."""
        table = self.table(players, side)
        games = table.sum(-1)
        is_known = (games > 0.0) & (games >= self.min_games)
        points = table[..., 0] + 0.5 * table[..., 1]
        return np.where(is_known, points / np.where(is_known, games, 1.0), 0.5), games

    def table(self, players: Sequence[str], side: int = ANY_SIDE) -> NDArray[np.float64]:
        """`[player, opponent]`: wins, draws and losses of the player in one side, or over all."""
        where = {player: number for number, player in enumerate(players)}
        num = len(players)
        met = [pair for pair in self._counts if pair[0] in where and pair[1] in where]
        at = np.fromiter((where[one] * num + where[two] for one, two in met), np.intp, len(met))
        records = (self.record(one, two, side) for one, two in met)
        flat = np.fromiter(itertools.chain.from_iterable(records), np.float64, _SCORE * len(met))
        table = np.zeros((num * num, _SCORE))
        table[at] = flat.reshape(-1, _SCORE)
        return table.reshape(num, num, _SCORE)

    def mean_score(self, player: str, other: str, side: int = ANY_SIDE) -> float:
        """What `player` gets against `other` in one side, or in the mean of those it had; 0 if they never met."""
        by_side = self._counts.get((player, other), {})
        found = [counts for each, counts in by_side.items() if side in (each, ANY_SIDE)]
        return sum(counts[_SCORE] / sum(counts[:_SCORE]) for counts in found) / len(found) if found else 0.0

    def score_matrix(self, players: Sequence[str]) -> NDArray[np.float64]:
        """`[player, opponent]`: half of how much more the player gets; what it gets, if one's gain is another's loss.

        No side counts more than another. `m[i, j] == -m[j, i]`, and 0 for those who never met.
        """
        scores = np.array([[self.mean_score(one, two) for two in players] for one in players])
        # Their difference may be past the largest number there is, halves of them are not.
        return 0.5 * scores - 0.5 * scores.T if len(players) else np.zeros((0, 0))

    def revision(self, players: Sequence[str]) -> tuple[Any, ...]:
        """It is another one after any result between these players."""
        pairs = itertools.combinations(players, 2)
        return (self._num_restored, *players, *(self._num_counted[pair] for pair in pairs))

    def games(self, player: str, other: str) -> float:
        """That ended, and, each as one, those in flight."""
        return self.record(player, other).games + self._flying[frozenset((player, other))]

    def games_of(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """`games` of each pair."""
        games = np.array([self.record(*pair).games if pair in self._counts else 0.0 for pair in pairs])
        if self._flying:
            games += [self._flying[frozenset(pair)] for pair in pairs]
        return games

    @property
    def in_flight(self) -> dict[str, tuple[str, ...]]:
        """Players by side, of each match that began and has not ended."""
        return dict(self._in_flight)

    @property
    def num_in_flight(self) -> int:
        return len(self._in_flight)

    def in_flight_players(self, match: str) -> tuple[str, ...] | None:
        """By side; `None` if it is not in flight."""
        return self._in_flight.get(match)

    # --- checkpoints

    def save(self) -> Nest:
        """For the codec."""
        counts = [[*pair, side, *row] for pair, by_side in self._counts.items() for side, row in by_side.items()]
        return {"counts": counts, "in_flight": {match: list(players) for match, players in self._in_flight.items()}}

    def restore(self, saved: Nest) -> None:
        """Also of what was saved before there were scores: a win was worth 1 and a loss -1 then."""
        self._counts = {}
        self._records.clear()
        self._num_counted.clear()
        self._num_restored += 1
        for player, other, side, *row in saved["counts"]:
            wins, draws, losses, *rest = (float(count) for count in row)
            score = rest[0] if rest else wins - losses
            self._counts.setdefault((player, other), {})[int(side)] = [wins, draws, losses, score]
        self._in_flight = {match: tuple(players) for match, players in saved["in_flight"].items()}
        self._flying = Counter(pair for players in self._in_flight.values() for pair in _pairs(players))


def _pairs(players: Sequence[str]) -> list[frozenset[str]]:
    """Of different players, each pair once."""
    return [frozenset(pair) for pair in itertools.combinations(dict.fromkeys(players), 2)]
