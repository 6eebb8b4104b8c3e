"""A round-robin: which contestants meet in which teams of a game, and what came of it.

    games = RoundRobin(["main", "rock", "paper"], Teams(2), num_games=200, seed=1)
    Evaluations(LearningParts(league=games, ...)).play()       # again and again, until games.is_done
    games.record("main", "rock").win_rate

A game of n teams (a side that is played alone is a team of one) is planned n times in a row: in each of these games
every contestant has moved on by one team, so that all of them have had all teams. Where there are more contestants than
teams, those meet who have met least; where there are fewer, some have several teams.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.errors import ConfigError, DataError
from ludus.league.payoff import Record
from ludus.league.players import Player, player_to_nest
from ludus.league.teams import Teams

__all__ = ["RoundRobin"]


class RoundRobin:
    """`LeagueCalls`: each pair of `names` meets in `num_games` games or a few more. For one thread.

    `fill` has all teams that are left where there are fewer contestants than teams; by default those that have had
    fewest. A pair has one result in each game that it meets in: if they have several teams, the mean over theirs.

    What was planned is played to its end and counted, however long it takes: if the first games to end were counted,
    short games would count more often than long ones. Envs that have nothing left to play are given games that are not
    counted.
    """

    def __init__(
        self, names: Sequence[str], teams: Teams, num_games: int, *, seed: int = 0, fill: str | None = None
    ) -> None:
        if len(names) < 2 or len(set(names)) < len(names):
            raise ConfigError(f"a round-robin is for two contestants or more, each named once: {', '.join(names)}")
        if fill is not None and fill not in names:
            raise ConfigError(f"{fill!r} is to have the teams that are left, and is none of {', '.join(names)}")
        if num_games < 1:
            raise ConfigError(f"num_games={num_games}: each pair plays 1 or more")
        self._names = list(names)
        self._teams = teams
        self._fill = fill
        self._rng = np.random.default_rng([seed, 0xA2E])
        self._planned: collections.deque[tuple[str, ...]] = collections.deque(self._plan(num_games))
        self._spare = self._planned[-1]
        self._in_flight: dict[str, tuple[str, ...]] = {}  # of what was planned: names by team
        self._num_started = 0
        # Of a player and an opponent, by its team: wins, draws and losses.
        self._counts: dict[tuple[str, str], dict[int, list[float]]] = {}
        self.num_planned = len(self._planned)
        self.num_counted = 0

    # --- the plan

    def _plan(self, num_games: int) -> Iterator[tuple[str, ...]]:
        """Names by team, of all games."""
        num = len(self._names)
        met = np.zeros((num, num))
        np.fill_diagonal(met, np.inf)
        num_teams = np.zeros(num)  # that each has had
        while met.min() < num_games:
            chosen = self._chosen(met, num_teams)
            met[np.ix_(chosen, chosen)] += self._teams.num
            np.add.at(num_teams, chosen, 1.0)
            lineup = [self._names[each] for each in self._rng.permutation(chosen)]
            for shift in range(len(lineup)):
                yield (*lineup[shift:], *lineup[:shift])

    def _chosen(self, met: NDArray[np.float64], num_teams: NDArray[np.float64]) -> list[int]:
        """Who plays next, one for each team: a pair that has met least, and those who have met these least."""
        chosen = [int(each) for each in divmod(self._least(met.ravel()), len(met))]
        while len(chosen) < min(len(met), self._teams.num):
            with_chosen = met[:, chosen].sum(1)
            with_chosen[chosen] = np.inf
            chosen.append(self._least(with_chosen))
        while len(chosen) < self._teams.num:
            had = num_teams + np.bincount(chosen, minlength=len(met))
            chosen.append(int(had.argmin()) if self._fill is None else self._names.index(self._fill))
        return chosen

    def _least(self, values: NDArray[np.float64]) -> int:
        """The number of the least value; of several, any."""
        return int(self._rng.choice(np.flatnonzero(values == values.min())))

    # --- of `LeagueCalls`

    def request_matches(self, learner: str, num: int, owner: str = "") -> list[Nest]:
        raise ConfigError(f"nobody learns in a round-robin, {learner!r} neither: ask for evaluations")

    def request_evaluations(self, num: int, names: list[str] | None = None, owner: str = "") -> list[Nest]:
        """The next games of the plan, each as a match of its own. `names` is not asked: all contestants play."""
        del names, owner
        return [self._begin() for _ in range(num)]

    def _begin(self) -> Nest:
        self._num_started += 1
        match, lineup = str(self._num_started), self._spare
        if self._planned:
            lineup = self._in_flight[match] = self._planned.popleft()
        players = [Player(name, role="bot", model=name) for name in self._teams.by_side(lineup)]
        return {"id": match, "players": [player_to_nest(each) for each in players], "learner": None}

    def report_series(self, results: list[Nest]) -> list[bool]:
        """Which were counted: not those beyond the plan. Scores are by side."""
        return [self._report(match, games) for match, games in results]

    def _report(self, match: str, games: Sequence[Sequence[float]]) -> bool:
        lineup = self._in_flight.get(match)
        if lineup is None or not games:
            return False
        for scores in games:
            by_team = self._teams.scores(scores)
            if not all(math.isfinite(score) for score in by_team):
                raise DataError(
                    f"the scores of a game of {', '.join(dict.fromkeys(lineup))} are {list(scores)}: it cannot be said "
                    "who has won. Rewards must be finite, and their sums as well; fix the environment"
                )
            self._count(lineup, by_team)
        del self._in_flight[match]
        self.num_counted += 1
        return True

    def abort_match(self, match: str) -> bool:
        """It was not played to its end: it is planned again, as the next one."""
        lineup = self._in_flight.pop(match, None)
        if lineup is not None:
            self._planned.appendleft(lineup)
        return lineup is not None

    def _count(self, lineup: Sequence[str], scores: Sequence[float]) -> None:
        pairs = [(one, two) for one, two in itertools.permutations(range(len(lineup)), 2) if lineup[one] != lineup[two]]
        num = collections.Counter((lineup[one], lineup[two]) for one, two in pairs)
        for one, two in pairs:
            pair = lineup[one], lineup[two]
            counts = self._counts.setdefault(pair, {}).setdefault(one, [0.0, 0.0, 0.0])
            result = 0 if scores[one] > scores[two] else 1 if scores[one] == scores[two] else 2
            counts[result] += 1.0 / num[pair]

    # --- what came of it

    @property
    def is_done(self) -> bool:
        """Whether all that was planned is counted."""
        return self.num_counted == self.num_planned

    def record(self, player: str, other: str, team: int | None = None) -> Record:
        """Of `player` against `other`, of all games or of those in which it had this team."""
        by_team = self._counts.get((player, other), {})
        found = [counts for each, counts in by_team.items() if team in (each, None)]
        return Record(*(sum(column) for column in zip(*found, strict=True))) if found else Record()

    def table(self, players: Sequence[str]) -> NDArray[np.float64]:
        """`[player, opponent]`: wins, draws and losses."""
        return np.array([[self.record(one, two) for two in players] for one in players])
