"""Exact answers in small games agree with OpenSpiel's."""

from __future__ import annotations

import numpy as np
import pytest

from ludus import envs
from ludus.envs.openspiel.named import tree_of
from ludus.errors import ConfigError
from ludus.league.psro.behaviour import probabilities, table_of
from ludus.league.psro.tabular_game import TabularGame
from ludus.league.psro.tabular_policy import TabularPolicy
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.testing.spiel_referee import nash_conv


def game_of(name: str) -> TabularGame:
    return TabularGame(tree_of(f"openspiel:{name}", {}))


def drawn(game: TabularGame, seed: int) -> np.ndarray:
    weights = np.random.default_rng(seed).random(game.info_legal.shape) * game.info_legal
    return weights / weights.sum(1, keepdims=True)


def test_uniform_play_of_leduc_poker_has_the_nash_conv_that_is_known() -> None:
    game = game_of("leduc_poker")
    assert game.nash_conv(game.uniform()) == pytest.approx(4.747, abs=5e-4)
    assert nash_conv("openspiel:leduc_poker", {}, game.uniform()) == pytest.approx(4.747, abs=5e-4)


@pytest.mark.parametrize("seed", [1, 2])
def test_nash_conv_is_that_of_openspiel(seed: int) -> None:
    game = game_of("kuhn_poker")
    table = drawn(game, seed)
    assert game.nash_conv(table) == pytest.approx(nash_conv("openspiel:kuhn_poker", {}, table))


def test_an_average_scores_as_the_mixture_does_against_anybody() -> None:
    game = game_of("kuhn_poker")
    one, two, other = (drawn(game, seed) for seed in (1, 2, 3))
    mean = 0.3 * game.value(one, other) + 0.7 * game.value(two, other)
    assert game.value(game.average([one, two], [0.3, 0.7]), other) == pytest.approx(mean)
    assert game.value(other, other) == pytest.approx(0.0)


def test_the_best_response_gets_what_nash_conv_says_and_no_other_gets_more() -> None:
    game = game_of("leduc_poker")
    table = drawn(game, 1)
    best = game.best_response(table)
    assert np.array_equal(best.sum(1), np.ones(len(best)))
    assert 2.0 * game.value(best, table) == pytest.approx(game.nash_conv(table))
    assert game.value(drawn(game, 2), table) < game.value(best, table)


def test_a_table_plays_by_what_is_seen() -> None:
    game = game_of("kuhn_poker")
    env = envs.make("openspiel:kuhn_poker", 400)
    policy, now = TabularPolicy(game, drawn(game, 1)), env.reset(seed=1)
    action, logp, _ = policy.act(now.obs[::2], None, now.first[::2], np.random.default_rng(1), now.mask[::2])
    assert set(action.tolist()) == {0, 1}
    assert (logp < 0.0).all()
    env.step(np.repeat(action, 2))


def test_the_table_of_a_network_is_what_it_does() -> None:
    game = game_of("kuhn_poker")
    spec = envs.spec("openspiel:kuhn_poker")
    policy = Policy(PolicySpec(obs=spec.obs, action=spec.action), seed=1)
    table = table_of(policy, game)
    obs = np.repeat(game.tree.obs[game.tree.info_node[:1], game.info_player[:1]], 4000, axis=0)
    action, _, _ = policy.act(obs, None, np.ones(4000, bool), np.random.default_rng(1), np.ones((4000, 2), bool))
    assert action.mean() == pytest.approx(table[0, 1], abs=0.04)
    masked = probabilities(policy, obs[:1], np.array([[False, True]]))
    assert masked.tolist() == [[0.0, 1.0]]


def test_a_game_of_three_has_no_exact_answers() -> None:
    with pytest.raises(ConfigError, match="two players"):
        TabularGame(tree_of("openspiel:kuhn_poker", {"players": 3}))
