"""The book of a simulator's matches: what is reported when, and what is aborted."""

from __future__ import annotations

from typing import Any

import pytest

from ludus.errors import Unreachable
from ludus.league.league import League
from ludus.league.match_book import MatchBook
from ludus.league.memory_league import MemoryLeague
from ludus.league.players import Player


class Losing(MemoryLeague):
    """A league whose first answer to a report is an error."""

    def __init__(self) -> None:
        super().__init__(League(seed=1), [Player("main")])
        self.reports: list[Any] = []

    def report_series(self, results: list[Any]) -> list[bool]:
        self.reports.append([match for match, _ in results])
        if len(self.reports) == 1:
            raise Unreachable("it is being started again")
        return super().report_series(results)


def test_what_could_not_be_reported_is_reported_again_and_what_was_is_not() -> None:
    league = Losing()
    book = MatchBook(league, num_envs=2, learner="main", games_per_match=1)
    first = book.match_of(0).id
    book.end_game(0, (1.0, -1.0))
    with pytest.raises(Unreachable):
        book.flush()
    book.flush()
    book.flush()
    assert league.reports == [[first], [first]]
    assert league.league.num_games == 1


def test_a_void_game_is_played_again_in_the_same_match() -> None:
    book = MatchBook(MemoryLeague(League(seed=1), [Player("main")]), num_envs=1, learner="main", games_per_match=1)
    match = book.match_of(0)
    book.end_game(0, None)
    assert book.num_games == 0
    assert book.match_of(0) is match


def test_nothing_is_left_in_flight_by_who_plays_no_more() -> None:
    calls = MemoryLeague(League(seed=1), [Player("main")])
    book = MatchBook(calls, num_envs=3, learner="main")
    book.match_of(0)  # and two that wait for the other envs
    assert calls.league.payoff.num_in_flight == 3
    book.abandon()
    assert calls.league.payoff.num_in_flight == 0
