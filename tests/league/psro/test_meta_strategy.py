"""Whom a best response is made to: mixtures of fixed players, by mean scores."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from ludus.errors import ConfigError
from ludus.league.payoff import Payoff
from ludus.league.players import Player
from ludus.league.psro.meta_strategy import META_SOLVERS, MetaStrategy

ROCK, PAPER, SCISSORS = (Player(name, role="snapshot") for name in ("rock", "paper", "scissors"))


def play(payoff: Payoff, one: str, two: str, score: float) -> None:
    payoff.begin("m", (one, two))
    payoff.end("m", (score, -score))


def biased(scale: float = 1.0) -> Payoff:
    payoff = Payoff()
    play(payoff, "paper", "rock", scale)
    play(payoff, "scissors", "paper", scale)
    play(payoff, "rock", "scissors", 2.0 * scale)
    return payoff


@pytest.mark.parametrize("scale", [1.0, 1e6, 8e307])
@pytest.mark.parametrize("solver", ["nash", "fictitious_play", "replicator", "projected_replicator"])
def test_the_mixture_is_an_equilibrium_of_mean_scores_and_not_of_wins(solver: str, scale: float) -> None:
    mixture = MetaStrategy(solver).mixture([ROCK, PAPER, SCISSORS], biased(scale))
    assert mixture == pytest.approx({"rock": 0.25, "paper": 0.5, "scissors": 0.25}, abs=0.03)


def test_uniform_is_fictitious_self_play() -> None:
    assert MetaStrategy("uniform").mixture([ROCK, PAPER], biased()) == {"rock": 0.5, "paper": 0.5}


def test_opponents_are_drawn_by_the_mixture_and_there_is_none_without_a_fixed_player() -> None:
    rule, payoff, rng = MetaStrategy(), biased(), np.random.default_rng(1)
    drawn = [rule.choose("main", [Player("main"), ROCK, PAPER, SCISSORS], payoff, rng) for _ in range(400)]
    assert 160 < drawn.count("paper") < 240
    assert "main" not in drawn
    assert rule.choose("main", [Player("main")], Payoff(), rng) is None


def test_a_player_belongs_to_it_from_when_it_has_played_enough_games() -> None:
    payoff, rule = biased(), MetaStrategy(min_games=2)
    players = [ROCK, PAPER, SCISSORS]
    assert rule.mixture(players, payoff) == {"rock": 1.0}
    play(payoff, "paper", "rock", 1.0)
    assert rule.mixture(players, payoff) == {"paper": 1.0}
    play(payoff, "rock", "scissors", 2.0)
    play(payoff, "rock", "scissors", 2.0)
    assert rule.mixture(players, payoff) == {"paper": 1.0}, "scissors has not met paper often enough"
    play(payoff, "scissors", "paper", 1.0)
    assert set(rule.mixture(players, payoff)) == {"rock", "paper", "scissors"}


def test_it_is_solved_once_as_long_as_no_two_fixed_players_have_met(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []
    monkeypatch.setattr(MetaStrategy, "_solve", lambda self, names, payoff: solved.append(names) or {"rock": 1.0})
    rule, payoff, players = MetaStrategy(), biased(), [ROCK, PAPER, SCISSORS]
    rng = np.random.default_rng(1)
    for _ in range(50):
        rule.choose("main", players, payoff, rng)
        play(payoff, "main", "rock", 1.0)
    assert len(solved) == 1
    play(payoff, "paper", "rock", 1.0)
    rule.choose("main", players, payoff, rng)
    payoff.restore(payoff.save())
    rule.choose("main", players, payoff, rng)
    rule.choose("main", players[:2], payoff, rng)
    assert len(solved) == 4


def test_it_goes_to_another_process_without_what_it_has_computed() -> None:
    rule = MetaStrategy("uniform", 3.0)
    rule.mixture([ROCK], Payoff())
    assert pickle.loads(pickle.dumps(rule)) == rule  # noqa: S301


def test_a_misspelt_solver_is_answered_with_the_nearest() -> None:
    assert set(META_SOLVERS) >= {"nash", "uniform"}
    with pytest.raises(ConfigError, match="nash"):
        MetaStrategy("nahs")
    with pytest.raises(ConfigError, match="min_games"):
        MetaStrategy(min_games=-1)
