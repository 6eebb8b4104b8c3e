"""Which match each env plays, and what comes of it: between the envs of a simulator and the league.

    book = MatchBook(league, num_envs=64, learner="main", owner="learner/0")
    book.match_of(3).players                           # by side; the next game of env 3 is theirs
    book.end_game(3, (1.0, -1.0))                      # then the next game of the series, or another match
    book.flush()                                       # what has ended is reported

A match is a series of games between the same players, so that the league is called only now and then.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, Protocol

from ludus.data.nest import Nest
from ludus.league.league import Match
from ludus.league.players import Player, player_of

__all__ = ["LeagueCalls", "MatchBook"]

_MOST_PLAYERS = 256
_REPORT_AT = 64  # matches that have ended


class LeagueCalls(Protocol):
    """What simulators ask of a league: a `LeagueService`, or the remote of one."""

    def request_matches(self, learner: str, num: int, owner: str = "") -> list[Nest]: ...

    def request_evaluations(self, num: int, names: list[str] | None = None, owner: str = "") -> list[Nest]: ...

    def report_series(self, results: list[Nest]) -> list[bool]: ...

    def abort_match(self, match: str) -> bool: ...


class MatchBook:
    """`learner` plays in all matches; `None`: evaluations, of `names` or of all players."""

    def __init__(
        self,
        league: LeagueCalls,
        *,
        num_envs: int,
        learner: str | None,
        names: Sequence[str] | None = None,
        owner: str = "",
        games_per_match: int = 4,
    ) -> None:
        self.learner = learner
        self.num_games = 0
        self._league = league
        self._names = None if names is None else list(names)
        self._owner = owner
        self._games_per_match = games_per_match
        self._num_envs = num_envs
        self._matches: list[Match | None] = [None] * num_envs
        self._games: list[list[list[float]]] = [[] for _ in range(num_envs)]
        self._waiting: collections.deque[Match] = collections.deque()
        self._results: list[Any] = []
        self._players: dict[tuple[Any, ...], Player] = {}

    def match_of(self, env: int) -> Match:
        """The match that it plays; asked for if it has none."""
        match = self._matches[env]
        if match is None:
            match = self._matches[env] = self._next()
        return match

    def end_game(self, env: int, scores: Sequence[float] | None) -> None:
        """A game is over, by these scores by side; `None`: it is void, and is played again."""
        match = self._matches[env]
        if match is None or scores is None:
            return
        games = self._games[env]
        games.append([float(score) for score in scores])
        self.num_games += 1
        if len(games) < self._games_per_match:
            return
        self._results.append([match.id, games])
        self._matches[env], self._games[env] = None, []
        if len(self._results) >= _REPORT_AT:
            self.flush()

    def drop(self, env: int) -> None:
        """Abort the match that it plays, because somebody in it cannot play any more; the next one is another."""
        match, self._matches[env] = self._matches[env], None
        self._games[env] = []
        if match is not None:
            self._league.abort_match(match.id)

    def abandon(self) -> None:
        """Abort all matches: nobody plays them on."""
        for env in range(self._num_envs):
            self.drop(env)
        while self._waiting:
            self._league.abort_match(self._waiting.popleft().id)

    def forget(self) -> None:
        """The league has aborted all of its matches: the next ones are others."""
        self._matches = [None] * self._num_envs
        self._games = [[] for _ in range(self._num_envs)]
        self._waiting.clear()

    def flush(self) -> None:
        """Report what has ended. A match is counted once, so after a failure it may be tried again."""
        if self._results:
            self._league.report_series(self._results)
            self._results = []

    def _next(self) -> Match:
        if not self._waiting:
            num = max(1, min(self._num_envs, _REPORT_AT))
            asked = (
                self._league.request_evaluations(num, self._names, self._owner)
                if self.learner is None
                else self._league.request_matches(self.learner, num, self._owner)
            )
            self._waiting.extend(
                Match(each["id"], tuple(self._player(player) for player in each["players"]), each["learner"])
                for each in asked
            )
        return self._waiting.popleft()

    def _player(self, nest: Nest) -> Player:
        """The same few are met again and again, and are checked once."""
        key = tuple(tuple(value) if isinstance(value, list) else value for value in nest.values())
        found = self._players.get(key)
        if found is None:
            if len(self._players) >= _MOST_PLAYERS:
                self._players.clear()
            found = self._players[key] = player_of(nest)
        return found
