"""Arenas of games with two sides, more, and teams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ludus.errors import ConfigError, EnvError
from ludus.experiment.config import Config
from ludus.league import arena
from ludus.league import config as configs
from ludus.league.arena import Contestant

from .games import SMALL, own_game


class Bids:
    state_spec = None

    def __init__(self, bid: int) -> None:
        self.bid = bid

    def act(self, obs: Any, state: Any, first: Any, rng: Any, mask: Any = None, *, greedy: bool = False) -> Any:
        return np.full(len(first), self.bid), np.zeros(len(first), np.float32), None


def bidders(**bids: int) -> list[Contestant]:
    return [Contestant(name=name, game=None, open=lambda _, bid=bid: Bids(bid)) for name, bid in bids.items()]


def game(name: str, **settings: Any) -> Config:
    return configs.resolve(own_game(name), {**SMALL, **settings}, algorithm="ppo").training


def test_in_a_game_of_three_every_pair_meets_on_all_sides_and_the_highest_is_rated_highest() -> None:
    found = arena.play(bidders(low=0, mid=1, high=2), game("auction"), num_games=12)
    assert found.records["high", "mid"] == found.records["high", "low"] == (12.0, 0.0, 0.0)
    assert found.records["mid", "low"] == (0.0, 12.0, 0.0), "neither is the highest"
    assert found.first_side["high", "low"] == (4.0, 0.0, 0.0)
    assert found.ratings["high"].mean > found.ratings["mid"].mean == pytest.approx(found.ratings["low"].mean)


def test_two_in_a_game_of_three_have_the_third_side_in_turn() -> None:
    found = arena.play(bidders(low=0, high=2), game("auction"), num_games=12)
    assert found.records["high", "low"] == (12.0, 0.0, 0.0)


def test_teams_are_played_by_one_contestant_each() -> None:
    config = game("auction", env_args='{"num_bidders": 4}')
    contestants = bidders(low=0, high=2)
    found = arena.play(contestants, config, num_games=10, teams=((1, 2), (0, 3)))
    assert found.records["high", "low"] == (10.0, 0.0, 0.0)
    assert found.first_side["high", "low"] == (5.0, 0.0, 0.0)
    with pytest.raises(ConfigError, match="belongs to one team"):
        arena.play(contestants, config, num_games=10, teams=((0, 1), (2,)))


def test_bots_have_their_sides_by_a_command_and_teams_by_an_option() -> None:
    bid = own_game("bids_two")
    found = arena.play_arena(["random", bid], game=own_game("auction"), num_games=12)
    assert found.records[bid, "random"].wins >= 6.0, "a random bidder bids 2 in every third game"
    assert found.records[bid, "random"].losses == 0.0
    with pytest.raises(ConfigError, match="belongs to one team"):
        arena.play_arena(["random", bid], game=own_game("auction"), num_games=12, teams="0,1")


def test_the_teams_of_leagues_must_be_the_same_or_be_said() -> None:
    one, two = bidders(low=0, high=2)
    with_teams = [
        Contestant(name=each.name, game=None, open=each.open, teams=teams)
        for each, teams in ((one, ((0, 1), (2,))), (two, ()))
    ]
    assert arena._teams_of([with_teams[0], bidders(mid=1)[0]]) == ((0, 1), (2,))
    with pytest.raises(ConfigError, match="different teams"):
        arena._teams_of(with_teams)


def test_games_that_never_end_are_an_error() -> None:
    with pytest.raises(EnvError, match="no game has ended that counts in 64 steps"):
        arena.play(bidders(low=0, high=2), game("endless"), num_games=4, max_game_steps=50)
    with pytest.raises(EnvError, match="given up"):
        arena.play(bidders(low=0, high=2), game("endless"), num_games=4, max_game_minutes=0.0)


def test_a_game_for_one_is_no_arena() -> None:
    config = configs.configs.resolve("ppo", "CartPole-v1", {})
    with pytest.raises(ConfigError, match="one agent"):
        arena.play(bidders(low=0, high=2), config, num_games=4)
