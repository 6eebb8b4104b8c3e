"""A trained policy plays: one observation in, one action out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from ludus import envs
from ludus.data import nest as nests
from ludus.errors import CheckpointError
from ludus.experiment import wiring
from ludus.experiment.config import resolve
from ludus.experiment.player import Player, load_player
from ludus.experiment.saved_config import write_trial
from ludus.learn.policies.policy import Policy
from ludus.training import api as training

torch.set_num_threads(1)


def make_player(env: str, **settings: Any) -> Player:
    config = resolve("ppo", env, settings)
    return Player(Policy(wiring.make_policy_spec(config, envs.spec(env)), seed=4))


def play(player: Any, env: str, *, episodes: int) -> float:
    gym_env = gymnasium.make(env)
    total = 0.0
    for seed in range(episodes):
        obs, _ = gym_env.reset(seed=seed)
        player.reset()
        is_over = False
        while not is_over:
            obs, reward, terminated, truncated, _ = gym_env.step(player.act(obs))
            total += float(reward)
            is_over = terminated or truncated
    gym_env.close()
    return total / episodes


def test_a_little_training_makes_a_player_that_keeps_the_pole_up(tmp_path: Path) -> None:
    run = training.train("ppo", "CartPole-v1", steps=25_000, seed=1, project=str(tmp_path), eval_episodes=0, threads=1)
    assert run.policy is run.policy
    assert run.policy.num_steps == run.result["steps"]
    assert play(make_player("CartPole-v1"), "CartPole-v1", episodes=3) < 120
    assert play(run.policy, "CartPole-v1", episodes=3) > 150


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_state_goes_on_from_act_to_act_until_it_is_reset(kind: str) -> None:
    player = make_player("CartPole-v1", recurrent=kind)
    obs = np.full(4, 0.5, np.float32)

    def states(num: int) -> list[np.ndarray]:
        found = []
        for _ in range(num):
            player.act(obs)
            found.append(np.concatenate([np.ravel(leaf) for leaf in nests.leaves(player._state)]))
        return found

    first = states(3)
    assert not np.array_equal(first[0], first[1])
    player.reset()
    for before, after in zip(first, states(3), strict=True):
        assert np.array_equal(before, after)


def test_actions_are_as_the_environment_takes_them() -> None:
    assert make_player("CartPole-v1").act([0.0, 0.1, 0.0, 0.1]) in (0, 1)
    torque = make_player("Pendulum-v1").act(np.zeros(3))
    assert torque.shape == (1,)
    assert torque.dtype == np.float32


def test_a_mask_is_heeded_and_sampling_explores() -> None:
    player = make_player("Acrobot-v1")
    obs = np.zeros(6, np.float32)
    for allowed in range(3):
        mask = np.arange(3) == allowed
        assert player.act(obs, mask=mask) == allowed
        assert player.act(obs, mask=mask, greedy=False) == allowed
    assert len({int(player.act(obs, greedy=False)) for _ in range(50)}) == 3
    assert len({int(player.act(obs)) for _ in range(5)}) == 1


def test_a_trial_without_a_checkpoint_has_no_player(tmp_path: Path) -> None:
    write_trial(tmp_path, resolve("ppo", "CartPole-v1", {"project": str(tmp_path)}))
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        load_player(tmp_path)
