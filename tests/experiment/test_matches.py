"""Matches: a policy against random play and against another policy, each side played equally."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus import envs
from ludus.experiment import wiring
from ludus.experiment.config import Config, resolve
from ludus.experiment.evaluation import Evaluation, evaluate
from ludus.experiment.matches import Matches, is_competitive, play_matches
from ludus.learn.policies.policy import Policy

torch.set_num_threads(1)
SMALL_GAMES = Path(__file__).with_name("games.py")
HIGHER = f"{SMALL_GAMES}:higher"


def naming(number: int, **settings: Any) -> tuple[Policy, Config]:
    """A policy that nearly always names this number, in the game of the higher one."""
    config = resolve("ppo", HIGHER, settings)
    policy = Policy(wiring.make_policy_spec(config, envs.spec(HIGHER)), seed=3)
    with torch.no_grad():
        for tensor in policy.parameters():
            tensor.zero_()
        biases = [tensor for tensor in policy.parameters() if tuple(tensor.shape) == (4,)]
        assert len(biases) == 1
        biases[0][number] = 30.0
    return policy, config


def played(one: int, other: int | None, episodes: int = 40) -> Matches:
    policy, config = naming(one)
    opponent = None if other is None else naming(other)[0]
    return play_matches(
        policy, opponent, config, num_agents=2, episodes=episodes, seed=1, greedy=other is None, max_steps=100
    )


def test_each_side_is_played_equally_by_winner_and_loser() -> None:
    assert played(3, 0) == Matches(win_rate=1.0, return_mean=5.0, num_episodes=40)
    assert played(0, 3) == Matches(win_rate=0.0, return_mean=-5.0, num_episodes=40)


def test_a_draw_counts_half() -> None:
    assert played(2, 2) == Matches(win_rate=0.5, return_mean=0.0, num_episodes=40)


def test_random_play_chooses_all_actions_alike() -> None:
    found = played(3, None, episodes=200)
    assert found.return_mean == pytest.approx(5 * 0.75, abs=0.3)  # a quarter of the rounds are drawn
    assert found.win_rate > 0.97
    assert played(0, None, episodes=200).return_mean == pytest.approx(-5 * 0.75, abs=0.3)


def test_an_odd_number_of_episodes_is_rounded_up_to_both_sides() -> None:
    assert played(3, 0, episodes=7).num_episodes == 8
    assert played(3, 0, episodes=129).num_episodes == 256


def test_in_self_play_of_a_zero_sum_game_the_mean_is_zero_and_each_agent_has_its_own_return() -> None:
    policy, config = naming(2)
    found = evaluate(policy, config, episodes=6, seed=1, greedy=False)
    assert found.agents == ("left", "right")
    assert found.mean == 0.0
    assert found.mean_of(0) == -found.mean_of(1)  # type: ignore[operator]
    assert sorted(set(found.episode_of)) == list(range(6))
    assert is_competitive(found)


def test_what_is_competitive_follows_from_the_returns_of_each_episode() -> None:
    def of(*episodes: tuple[float, ...]) -> Evaluation:
        rows = [(number, agent, total) for number, game in enumerate(episodes) for agent, total in enumerate(game)]
        return Evaluation(
            returns=tuple(total for _, _, total in rows),
            lengths=(1,) * len(rows),
            agents=("a", "b", "c")[: len(episodes[0])],
            agent_of=tuple(agent for _, agent, _ in rows),
            episode_of=tuple(number for number, _, _ in rows),
        )

    assert is_competitive(of((1.0, -1.0), (0.0, 0.0)))
    assert is_competitive(of((0.0, 0.0), (0.0, 0.0)))  # all drawn
    assert is_competitive(of((0.0, 0.0)), of((1.0, -1.0)))
    assert not is_competitive(of((3.0, 3.0), (5.0, 5.0)))  # they share what they get
    assert not is_competitive(of((3.0,), (5.0,)))


@pytest.mark.parametrize("env", ["pettingzoo:tictactoe_v3"])
def test_where_agents_take_turns_only_allowed_moves_are_played(env: str) -> None:
    config = resolve("ppo", env)
    policy = Policy(wiring.make_policy_spec(config, envs.spec(env)), seed=3)
    found = play_matches(policy, None, config, num_agents=2, episodes=20, seed=1, greedy=True, max_steps=100)
    assert found.num_episodes == 20  # an illegal move would end the game with a loss, in three moves
    assert 0.0 < found.win_rate < 1.0
    assert np.isfinite(found.return_mean)
