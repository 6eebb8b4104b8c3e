"""Leagues by the rules of PSRO and of plain self-play, from their settings to what their mixture is worth."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.envs.matrix.games import RPS
from ludus.errors import ConfigError
from ludus.league import config as configs
from ludus.league.api import LeagueRun, league, resume
from ludus.league.league import League
from ludus.league.live import open_league
from ludus.league.oracle import make_seats
from ludus.league.players import player_of
from ludus.league.pools import open_pool
from ludus.league.psro.behaviour import probabilities
from ludus.testing.spiel_referee import nash_conv

ONE_MOVE: dict[str, Any] = {
    "num_envs": 64,
    "num_steps": 8,
    "minibatch_size": 256,
    "hidden": (16,),
    "games_per_match": 8,
    "turn_updates": 2,
    "learning_rate": 5e-3,
    "entropy_coef": 0.01,
    "snapshot_steps": 4096,
    "bots": (),
}


def mixture_of(run: LeagueRun) -> tuple[Any, dict[str, float], list[Any]]:
    """Seats, the mixture, and all players."""
    config = configs.load(run.trial_dir)
    with contextlib.closing(open_pool(config, run.trial_dir)) as pool, open_league(run.trial_dir) as service:
        players = [player_of(each) for each in service.players()]
        seats = make_seats(config, pool)
        for player in players:
            seats.open(player)
        return seats, service.mixture(), players


def test_exact_psro_solves_kuhn_poker_and_goes_on_after_it_was_stopped(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rules": "psro", "oracle": "exact", "bots": (), "project": tmp_path, "trial": "kuhn"}
    run = league("openspiel:kuhn_poker", steps=6, **settings)
    run = resume("kuhn", project=str(tmp_path), settings={"steps": 14})
    assert run.result["steps"] == 14
    config = configs.load(run.trial_dir)
    with contextlib.closing(open_pool(config, run.trial_dir)) as pool, open_league(run.trial_dir) as service:
        seats: Any = make_seats(config, pool)
        players = {each["name"]: player_of(each) for each in service.players()}
        mixture = service.mixture()
        table = seats.game.average([seats.table(players[name]) for name in mixture], list(mixture.values()))
    assert sum(mixture.values()) == pytest.approx(1.0)
    assert nash_conv("openspiel:kuhn_poker", {}, table) < 0.001


def test_the_mixture_of_a_league_is_an_equilibrium_of_rock_paper_scissors(tmp_path: Path) -> None:
    settings = {"steps": 6 * 4096, "evaluation_games": 2000, "project": tmp_path, "seed": 1, **ONE_MOVE}
    run = league("matrix:rps", rules="psro", **settings)
    seats, mixture, players = mixture_of(run)
    strategies = {
        player.name: probabilities(seats.open(player), np.array([[1, 0]], np.float32), np.ones((1, 3), bool))[0]
        for player in players
        if player.is_fixed
    }
    average = sum(share * strategies[name] for name, share in mixture.items())
    # Its games are others each time: over 40 runs 0.01 on average, falling off exponentially, and 0.06 at most.
    assert (np.array(RPS) @ average).max() < 0.15, "without one of the three it would be 1"
    assert max((np.array(RPS) @ each).max() for each in strategies.values()) > 0.5, "no player is one by itself"


def test_in_self_play_nobody_meets_but_itself() -> None:
    config = configs.resolve("matrix:rps", {"rules": "self_play", "main": 2, **ONE_MOVE})
    assert [player.role for player in config.players()] == ["main", "main"]
    found = League(config.settings(2), seed=1)
    for player in config.players():
        found.add(player)
    matches = found.choose_matches("main", 20) + found.choose_matches("main_2", 20)
    assert {tuple(player.name for player in match.players) for match in matches} == {
        ("main", "main"),
        ("main_2", "main_2"),
    }


def test_evaluations_of_psro_are_of_snapshots_alone_and_end_when_all_have_met(tmp_path: Path) -> None:
    run = league("matrix:rps", rules="psro", steps=3 * 1024, project=tmp_path, **{**ONE_MOVE, "snapshot_steps": 1024})
    with open_league(run.trial_dir) as service:
        assert service.num_missing_evaluations() == 0
        names = [each["name"] for each in service.players()]
        assert names == ["main", "main-1", "main-2", "main-3"]
        games = np.array(service.payoff(names)["games"])
        met = {tuple(player["name"] for player in service.request_evaluation()["players"]) for _ in range(20)}
    assert games[1:, 1:][~np.eye(3, dtype=bool)].min() >= 100
    assert all("main" not in pair for pair in met)


@pytest.mark.parametrize(
    ("game", "settings", "message"),
    [
        ("openspiel:kuhn_poker", {"oracle": "exact"}, "rules=psro"),
        ("board:tic_tac_toe", {"oracle": "exact", "rules": "psro"}, "small games of OpenSpiel"),
        ("matrix:rps", {"rules": "psro", "teams": "0,1"}, "two sides"),
        ("matrix:rps", {"meta_solver": "nahs"}, "nash"),
    ],
)
def test_settings_that_do_not_fit_are_refused(game: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configs.resolve(game, settings)
