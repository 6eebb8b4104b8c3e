"""Ratings find the strengths that results were drawn from."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ludus import data
from ludus.errors import DataError
from ludus.league.payoff import Payoff
from ludus.league.rating import Ratings, elo

STRENGTHS = {"a": 300.0, "b": 100.0, "c": -50.0, "d": -350.0}  # Elo points, whose mean is 0


def chance(one: str, two: str) -> float:
    return float(1.0 / (1.0 + 10.0 ** ((STRENGTHS[two] - STRENGTHS[one]) / 400.0)))


def round_robin(num_games: int, seed: int = 0) -> Payoff:
    rng, payoff = np.random.default_rng(seed), Payoff()
    for one, two in itertools.combinations(STRENGTHS, 2):
        for _ in range(num_games):
            payoff.begin("m", (one, two))
            payoff.end("m", (1.0, 0.0) if rng.random() < chance(one, two) else (0.0, 1.0))
    return payoff


def test_elo_finds_the_strengths_and_says_how_sure_it_is() -> None:
    held, errors = [], []
    for seed in range(60):
        found = elo(round_robin(60, seed), list(STRENGTHS))
        for player, strength in STRENGTHS.items():
            low, high = found[player].interval()
            held.append(low <= strength <= high)
            errors.append(abs(found[player].mean - strength))
    assert 0.88 <= np.mean(held) <= 0.99, "of 95 % intervals"
    assert np.mean(errors) < 40


def test_more_games_make_it_surer() -> None:
    few, many = (elo(round_robin(num), list(STRENGTHS))["a"].std for num in (50, 800))
    assert few / many == pytest.approx(4.0, rel=0.2)


def test_who_has_won_everything_and_who_never_played_have_finite_ratings() -> None:
    payoff = Payoff()
    for _ in range(20):
        payoff.begin("m", ("a", "b"))
        payoff.end("m", (1.0, 0.0))
    found = elo(payoff, ["a", "b", "new"])
    assert found["a"].mean > 200 > -200 > found["b"].mean
    assert found["new"].mean == pytest.approx(0.0, abs=1.0)
    assert found["new"].std > found["a"].std
    assert elo(payoff, []) == {}


def test_ratings_that_follow_matches_order_players_by_strength() -> None:
    rng, ratings = np.random.default_rng(2), Ratings()
    for _ in range(400):
        one, two = rng.choice(list(STRENGTHS), 2, replace=False).tolist()
        ratings.update((one, two), (1.0, 0.0) if rng.random() < chance(one, two) else (0.0, 1.0))
    assert sorted(STRENGTHS, key=lambda player: -ratings.of(player).mean) == list(STRENGTHS)
    assert ratings.of("a").std < ratings.of("nobody").std
    low, high = ratings.of("a").interval()
    assert low < ratings.of("a").mean < high


def test_of_three_players_the_score_says_who_was_better() -> None:
    ratings = Ratings()
    ratings.update(("a", "b", "c"), (5.0, 7.0, 1.0))
    assert ratings.of("b").mean > ratings.of("a").mean > ratings.of("c").mean


def test_a_match_of_one_player_moves_nothing() -> None:
    ratings = Ratings()
    ratings.update(("a", "a"), (1.0, 0.0))
    assert ratings.of("a") == ratings.of("nobody")


def test_a_player_with_two_seats_is_rated_by_both() -> None:
    once, twice = Ratings(), Ratings()
    once.update(("a", "b"), (1.0, 0.0))
    twice.update(("a", "b", "a"), (1.0, 0.0, 1.0))
    assert twice.of("a").mean > twice.of("c").mean > twice.of("b").mean
    assert twice.of("a").std < once.of("c").std


def test_a_snapshot_begins_where_its_parent_is() -> None:
    ratings = Ratings()
    ratings.update(("a", "b"), (1.0, 0.0))
    ratings.add("a-1", parent="a")
    assert ratings.of("a-1") == ratings.of("a")
    ratings.remove("a-1")
    ratings.add("other", parent="nobody")
    assert ratings.of("a-1") == ratings.of("other") == ratings.of("new")


def test_what_is_restored_goes_on_where_it_was_saved() -> None:
    ratings, again = Ratings(), Ratings()
    ratings.update(("a", "b"), (1.0, 0.0))
    again.restore(data.decode(data.encode(ratings.save())))
    for each in (ratings, again):
        each.update(("b", "a"), (1.0, 0.0))
    assert again.of("a") == ratings.of("a")
    with pytest.raises(DataError, match="nothing was rated"):
        again.update(("a", "b"), (1.0,))
