"""A league without a service: in this process, for as long as it is needed, nothing written.

    calls = MemoryLeague(League(settings))
    MatchBook(calls, num_envs=64, learner=None)

An arena and a gate play their matches in one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ludus.data.nest import Nest
from ludus.league.league import League, Match
from ludus.league.players import Player, player_to_nest

__all__ = ["MemoryLeague"]


class MemoryLeague:
    """`LeagueCalls` of a `League`. For one thread."""

    def __init__(self, league: League, players: Sequence[Player] = ()) -> None:
        self.league = league
        for player in players:
            league.add(player)

    def request_matches(self, learner: str, num: int, owner: str = "") -> list[Nest]:
        return [self._begin(match) for match in self.league.choose_matches(learner, num, owner=owner)]

    def request_evaluations(self, num: int, names: list[str] | None = None, owner: str = "") -> list[Nest]:
        return [self._begin(match) for match in self.league.choose_evaluations(num, names, owner=owner)]

    def report_series(self, results: list[Nest]) -> list[bool]:
        return [self.league.report_series(match, games) for match, games in results]

    def abort_match(self, match: str) -> bool:
        return self.league.abort(match)

    def _begin(self, match: Match) -> Nest:
        self.league.begin(match)
        return {"id": match.id, "players": [player_to_nest(each) for each in match.players], "learner": match.learner}
