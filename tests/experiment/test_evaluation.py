"""Evaluation: as many episodes as asked, each world the same number, the same by the same seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ludus import envs
from ludus.experiment import evaluation, wiring
from ludus.experiment.config import Config, resolve
from ludus.learn.policies.policy import Policy

torch.set_num_threads(1)
GAMES = Path(__file__).parents[1] / "services" / "simulator" / "worlds.py"


def made(env: str, **settings: Any) -> tuple[Policy, Config]:
    config = resolve("ppo", env, settings)
    return Policy(wiring.make_policy_spec(config, envs.spec(env, **config.env_args)), seed=3), config


@pytest.mark.parametrize("episodes", [1, 7, 128, 200])
def test_there_are_exactly_as_many_episodes_as_asked(episodes: int) -> None:
    policy, config = made("CartPole-v1")
    told = evaluation.evaluate(policy, config, episodes=episodes, seed=1)
    assert told.num_episodes == len(told.lengths) == episodes
    assert told.returns == told.lengths  # one for every step


def test_of_several_agents_each_has_its_own_return() -> None:
    policy, config = made("mpe2:simple_spread_v3")
    told = evaluation.evaluate(policy, config, episodes=3, seed=1)
    assert told.num_episodes == 9
    assert set(told.lengths) == {25}


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_greedy_play_is_decided_by_the_seed(recurrent: str) -> None:
    policy, config = made("CartPole-v1", recurrent=recurrent)
    one, same, other = (evaluation.evaluate(policy, config, episodes=10, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_sampled_play_is_decided_by_the_seed_too() -> None:
    policy, config = made("CartPole-v1")
    one, same = (evaluation.evaluate(policy, config, episodes=10, seed=1, greedy=False) for _ in range(2))
    assert one == same
    assert one != evaluation.evaluate(policy, config, episodes=10, seed=1)


def test_episodes_of_worlds_that_raise_do_not_count() -> None:
    policy, config = made(f"{GAMES}:brittle")
    told = evaluation.evaluate(policy, config, episodes=30, seed=1)
    assert told.returns == (10.0,) * 30
    assert told.lengths == (10,) * 30
