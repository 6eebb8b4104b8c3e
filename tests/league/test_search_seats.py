"""Players of a league that search: in seats, in evaluations, in an arena by `+search:N`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.errors import ConfigError, DataError
from ludus.experiment.search_player import SearchPlayer
from ludus.league import api as leagues
from ludus.league.arena import open_contestants, play_arena
from ludus.league.bots import RandomBot
from ludus.league.config import resolve
from ludus.league.live import open_league
from ludus.league.oracle import make_seats
from ludus.league.players import Player, player_of
from ludus.league.seats import Searching
from ludus.learn.policies.policy import Policy
from ludus.learn.search.settings import SearchSettings

from .games import GAME, SMALL


class _NoVersions:
    """A pool in which nothing is yet."""

    def get(self, model: str, version: int = -1) -> Any:
        raise AssertionError("there are no versions")

    def latest(self, model: str) -> None:
        return None


def _settings(player: Any) -> SearchSettings:
    assert isinstance(player, SearchPlayer)
    return player._search.settings


def test_a_player_with_simulations_searches_in_its_seat() -> None:
    seats = make_seats(resolve(GAME, SMALL), _NoVersions())
    assert isinstance(seats.open(Player("main", model="main")), Policy)
    assert isinstance(seats.open(Player("main", model="main", search=8)), SearchPlayer)
    gumbel = seats.open(Player("main", model="main", search=8, gumbel=True))
    assert [_settings(each).gumbel for each in (gumbel, seats.open(Player("main", model="main", search=8)))] == [
        True,
        False,
    ]
    in_evaluations = Searching(seats, 8)
    assert isinstance(in_evaluations.open(Player("main", model="main")), SearchPlayer)
    assert isinstance(in_evaluations.open(Player("random", role="bot", model="random")), RandomBot)
    assert isinstance(Searching(seats, 0).open(Player("main", model="main")), Policy)


def test_an_alphazero_league_trains_evaluates_by_search_and_meets_itself_searching(tmp_path: Path) -> None:
    settings = {**SMALL, "bots": ("random",), "simulations": 8, "search": 8, "steps": 1_500, "threads": 1}
    leagues.league(GAME, algorithm="alphazero", project=str(tmp_path), trial="league", **settings)
    names = ["league@main", "league@main+search:60", "random"]
    found = play_arena(names, project=tmp_path, num_games=40, seed=1)
    assert found.records["league@main+search:60", "random"].win_rate > 0.6  # 0.8 of some 70 games, which vary
    assert found.ratings["league@main+search:60"].mean > found.ratings["random"].mean
    with open_league(tmp_path / "league") as league:
        league.add_player({"name": "halving", "role": "frozen", "model": "main", "search": 8, "gumbel": True})
    names = ["league@halving", "league@main+gumbel:60", "league@halving+search:60", "league+gumbel:4"]
    for opened, simulations, gumbel in zip(
        open_contestants(names, project=tmp_path), (8, 60, 60, 4), (True, True, False, True), strict=True
    ):
        assert opened.game is not None
        settings = _settings(opened.open(opened.game))
        assert (settings.simulations, settings.gumbel) == (simulations, gumbel), opened.name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("minimax+search:8", "minimax is a program, and has no network"),
        ("monday+search:many", "how many simulations"),
        ("+search:8", "how many simulations"),
        ("monday+search:0", "how many simulations"),
        ("monday+gumbel:", r"as in \+gumbel:64"),
        ("random+gumbel:8", "random is a program, and has no network"),
        ("monday+gumble:8", "Did you mean 'gumbel'"),
        ("league@main+serch:8", "Did you mean 'search'"),
    ],
)
def test_names_that_cannot_search_are_refused(name: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        open_contestants([name], project=tmp_path)


def test_a_gumbel_root_is_part_of_a_search() -> None:
    with pytest.raises(ConfigError, match="give search=64, too"):
        Player("main", gumbel=True)
    with pytest.raises(DataError, match="gumbel"):
        player_of({"name": "main", "search": 8, "gumbel": "yes"})
    assert not player_of({"name": "main", "search": 8}).gumbel, "as it was written before there were any"
