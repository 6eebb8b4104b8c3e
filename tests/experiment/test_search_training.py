"""Runs of alphazero: exact resume, several processes, evaluations that search, envs that have no rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import envs
from ludus.data.actions import Discrete
from ludus.data.spec import ArraySpec
from ludus.envs.boards.perfect_play import PerfectPlay
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.errors import ConfigError
from ludus.experiment.config import resolve
from ludus.experiment.search_player import SearchPlayer
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.learn.search.settings import SearchSettings
from ludus.training import api as training

from . import runs

GAME = "board:tic_tac_toe"
SMALL: dict[str, Any] = {
    "num_envs": 8, "num_steps": 16, "num_epochs": 1, "minibatch_size": 64, "simulations": 8, "hidden": "16", "seed": 3,
    "env_args": "{}", "threads": 1, "steps": 3_000, "eval_episodes": 4, "checkpoint_seconds": 0.05,
}  # fmt: skip


def _policy(**settings: Any) -> Policy:
    """It has learnt nothing."""
    network = NetworkConfig(hidden=(8,))
    return Policy(PolicySpec(obs=TicTacToe.obs, action=Discrete(9), network=network, **settings))


def test_killed_it_goes_on_to_the_weights_of_a_run_that_nobody_stops(tmp_path: Path) -> None:
    settings = {**SMALL, "project": str(tmp_path)}
    child = runs.start(runs.train, "alphazero", GAME, {**settings, "trial": "killed"}, ends=False)
    runs.wait_until(lambda: runs.saved_step(tmp_path / "killed") > 500)
    runs.kill(child)
    resumed = training.resume("killed", project=str(tmp_path)).result
    whole = training.train("alphazero", GAME, **settings, trial="whole").result
    assert resumed["weights_hash"] == whole["weights_hash"]


def test_simulators_in_processes_of_their_own_search_too(tmp_path: Path) -> None:
    settings = {**SMALL, "project": str(tmp_path), "steps": 600, "simulators": 1, "gumbel": False}
    result = training.train("alphazero", GAME, **settings, trial="spread").result
    assert result["steps"] >= 600
    searching = training.evaluate("spread", project=str(tmp_path), episodes=40, search=100)
    assert searching["vs_random"] > 0.8


def test_a_player_that_searches_finds_what_its_network_does_not_know() -> None:
    rules, rng = TicTacToe(), np.random.default_rng(0)
    win = rules.start(1)
    for move in (0, 3, 1, 4):
        win = rules.step(win, np.array([move]))[0]
    player = SearchPlayer(_policy(), GAME, {}, SearchSettings(simulations=60))
    obs = rules.observe(win, rules.to_move(win))
    for greedy in (True, False):
        action, logp, state = player.act(obs, None, np.array([False]), rng, greedy=greedy, boards=win)
        assert PerfectPlay(rules).values(win)[0, action[0]] == 1.0
        assert (logp.tolist(), state) == ([0.0], None)
    with pytest.raises(ConfigError, match="give it the states"):
        player.act(obs, None, np.array([False]), rng)


def test_what_cannot_be_searched_is_named() -> None:
    def make(policy: Policy, game: str = GAME) -> None:
        SearchPlayer(policy, game, {}, SearchSettings())

    with pytest.raises(ConfigError, match=r"CartPole-v1 has none: only board games have them.* Set search=0"):
        make(_policy(), "CartPole-v1")
    with pytest.raises(ConfigError, match="this policy is not one for connect_four"):
        make(_policy(), "board:connect_four")
    with pytest.raises(ConfigError, match="and no value"):
        make(_policy(has_value=False))
    network = NetworkConfig(hidden=(8,), recurrent="gru", recurrent_size=4)
    with pytest.raises(ConfigError, match="without recurrent state"):
        make(Policy(PolicySpec(obs=ArraySpec((18,), np.float32, 0, 1), action=Discrete(9), network=network)))
    with pytest.raises(ConfigError, match="probabilities of moves"):
        make(Policy(PolicySpec(obs=TicTacToe.obs, action=Discrete(9), head="epsilon_greedy")))


@pytest.mark.parametrize(
    ("env", "settings", "problem"),
    [
        ("CartPole-v1", {}, "CartPole-v1 has none: only board games have them"),
        (GAME, {"simulators": 1, "inference": 1}, "Set inference=0"),
        ("CartPole-v1", {"simulators": 1}, "CartPole-v1 has none: only board games have them"),
        (GAME, {"recurrent": "lstm"}, "recurrent=none"),
    ],
)
def test_runs_that_cannot_search_are_refused(env: str, settings: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        training.train("alphazero", env, project=str(tmp_path), trial="refused", **settings)
    assert not (tmp_path / "refused").exists()


def test_values_in_units_of_returns_are_searched_with_as_outcomes() -> None:
    from ludus.learn.search.evaluator import PolicyEvaluator

    policy = _policy(normalise_returns=True)
    assert policy.value_scale is not None
    policy.value_scale.mean.fill_(0.3)
    policy.value_scale.std.fill_(0.01)
    obs = TicTacToe().observe(TicTacToe().start(600), np.zeros(600, np.int64))
    _, value = PolicyEvaluator(policy, TicTacToe())(obs)
    assert value.shape == (600,)
    assert np.abs(value - 0.3).max() < 0.1
    policy.value_scale.std.fill_(1e3)
    _, value = PolicyEvaluator(policy, TicTacToe())(obs)
    assert np.abs(value).max() <= 1.0
    assert resolve("alphazero", GAME, {}).algorithm.normalise_obs is False
    assert envs.rules(GAME) is not None
