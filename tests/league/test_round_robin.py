"""Who meets whom in which teams, and what is counted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ludus.errors import ConfigError, DataError
from ludus.league.rating import elo
from ludus.league.round_robin import RoundRobin
from ludus.league.teams import Teams

Lineup = tuple[str, ...]


def first_wins(lineup: Sequence[str]) -> list[float]:
    return [1.0, *([0.0] * (len(lineup) - 1))]


def play(games: RoundRobin, scores: Callable[[Sequence[str]], list[float]] = first_wins) -> list[Lineup]:
    """All games, as envs would that are given several at once; players by side."""
    lineups = []
    while not games.is_done:
        matches = games.request_evaluations(7)
        names = [tuple(player["name"] for player in match["players"]) for match in matches]
        counted = games.report_series([[m["id"], [scores(who)]] for m, who in zip(matches, names, strict=True)])
        lineups += [who for who, is_counted in zip(names, counted, strict=True) if is_counted]
    return lineups


def test_each_pair_of_a_game_of_two_meets_as_often_on_both_sides() -> None:
    games = RoundRobin(["a", "b", "c"], Teams(2), 20)
    lineups = Counter(play(games))
    assert lineups == dict.fromkeys(itertools.permutations("abc", 2), 10)
    for pair in itertools.permutations("abc", 2):
        assert games.record(*pair) == (10.0, 0.0, 10.0)
        assert games.record(*pair, team=0) == (10.0, 0.0, 0.0)
        assert games.record(*pair, team=1) == (0.0, 0.0, 10.0)


@pytest.mark.parametrize(("num_players", "num_sides"), [(3, 3), (5, 3), (6, 4), (4, 3)])
def test_where_there_are_more_sides_all_meet_and_have_every_side_as_often(num_players: int, num_sides: int) -> None:
    names = "abcdef"[:num_players]
    games = RoundRobin(list(names), Teams(num_sides), 24, seed=3)
    lineups = play(games)
    assert all(len(set(lineup)) == num_sides for lineup in lineups), "nobody plays against itself"
    met = Counter(frozenset(pair) for lineup in lineups for pair in itertools.combinations(lineup, 2))
    assert len(met) == num_players * (num_players - 1) // 2
    assert min(met.values()) >= 24
    assert max(met.values()) <= 24 + 3 * num_sides
    for name in names:
        sides = Counter(lineup.index(name) for lineup in lineups if name in lineup)
        assert len(set(sides.values())) == 1
        assert len(sides) == num_sides
    for pair, num in met.items():
        one, two = sorted(pair)
        assert games.record(one, two).games == num


def test_who_plays_alike_wins_half_however_many_sides_there_are() -> None:
    for fill in (None, "old"):
        games = RoundRobin(["new", "old"], Teams(3), 30, fill=fill)
        lineups = play(games)
        assert len(lineups) == 30
        record = games.record("new", "old")
        assert (round(record.games, 9), round(record.win_rate, 9)) == (30.0, 0.5), "one result of each game"
        num_teams = Counter(lineup.count("new") for lineup in lineups)
        assert num_teams == ({1: 30} if fill == "old" else {1: 15, 2: 15})


def test_a_pair_has_one_result_in_a_game_the_mean_over_its_teams() -> None:
    games = RoundRobin(["new", "old"], Teams(3), 3, fill="old")
    play(games, lambda lineup: [2.0 if name == "new" else float(side) for side, name in enumerate(lineup)])
    # new scores 2 as each side: against 1 and 2 on side 0, 0 and 2 on side 1, 0 and 1 on side 2
    assert games.record("new", "old") == (2.0, 1.0, 0.0)
    assert games.record("old", "new") == (0.0, 1.0, 2.0)
    assert games.record("new", "old", team=2) == (1.0, 0.0, 0.0)


def test_the_sides_of_a_team_are_one_contestants_and_their_scores_are_added() -> None:
    games = RoundRobin(["a", "b"], Teams(4, ((0, 2), (1, 3))), 10)
    lineups = play(games, lambda lineup: [5.0, 0.0, -4.0, 2.0])
    assert Counter(lineups) == {("a", "b", "a", "b"): 5, ("b", "a", "b", "a"): 5}
    assert games.record("a", "b", team=1) == (5.0, 0.0, 0.0), "1 against 2"


def test_what_was_planned_is_counted_once_and_what_was_broken_off_is_played_again() -> None:
    games = RoundRobin(["a", "b"], Teams(2), 4)
    first, second, *others = games.request_evaluations(9)
    assert games.abort_match(first["id"])
    assert not games.abort_match(first["id"])
    assert games.report_series([[second["id"], [[1.0, 0.0]]]]) == [True]
    assert games.report_series([[second["id"], [[1.0, 0.0]]]]) == [False]
    assert games.report_series([[first["id"], [[1.0, 0.0]]]]) == [False]
    assert games.report_series([[each["id"], [[1.0, 0.0]]] for each in others]) == [True] * 2 + [False] * 5
    assert not games.is_done
    [again] = games.request_evaluations(1)
    assert [each["name"] for each in again["players"]] == [each["name"] for each in first["players"]]
    assert games.report_series([[again["id"], [[1.0, 0.0]]]]) == [True]
    assert games.is_done
    assert games.record("a", "b").games == 4.0


def test_games_that_take_long_count_as_much_as_short_ones() -> None:
    """Those in which `a` begins are still played when the others, and many more, have ended."""
    games = RoundRobin(["a", "b"], Teams(2), 40)
    long: list[Any] = []
    for _ in range(20):
        for match in games.request_evaluations(10):
            if match["players"][0]["name"] == "a":
                long.append(match["id"])
            else:
                games.report_series([[match["id"], [[1.0, 0.0]]]])
    assert not games.is_done
    games.report_series([[match, [[1.0, 0.0]]] for match in long])
    assert games.is_done
    assert games.record("a", "b") == (20.0, 0.0, 20.0)


def test_the_strongest_of_a_game_of_three_is_rated_highest() -> None:
    games = RoundRobin(["low", "mid", "high"], Teams(3), 12)
    play(games, lambda lineup: [float(["low", "mid", "high"].index(name)) for name in lineup])
    ratings = elo(games, ["low", "mid", "high"])
    assert ratings["low"].mean < ratings["mid"].mean < ratings["high"].mean


def test_the_same_seed_plans_the_same_games() -> None:
    plans = [play(RoundRobin(["a", "b", "c"], Teams(3), 9, seed=seed)) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]


def test_what_cannot_be_a_round_robin_or_a_result_is_refused() -> None:
    with pytest.raises(ConfigError, match="each named once"):
        RoundRobin(["a", "a"], Teams(2), 10)
    with pytest.raises(ConfigError, match="teams that are left"):
        RoundRobin(["a", "b"], Teams(3), 10, fill="c")
    with pytest.raises(ConfigError, match="1 or more"):
        RoundRobin(["a", "b"], Teams(2), 0)
    games = RoundRobin(["a", "b"], Teams(2), 2)
    with pytest.raises(ConfigError, match="nobody learns"):
        games.request_matches("a", 1)
    [match] = games.request_evaluations(1)
    with pytest.raises(DataError, match="must be finite"):
        games.report_series([[match["id"], [[float("nan"), 0.0]]]])
