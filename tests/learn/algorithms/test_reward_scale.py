"""Rewards of any size are learnt from in units of the returns."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_segments import make_policy, make_segment

from ludus import data
from ludus.data.segment import Segment
from ludus.data.transitions import Transitions
from ludus.learn.algorithms.dqn import DQN, DQNConfig
from ludus.learn.algorithms.replay_learner import Replayed, ReplayLearner
from ludus.learn.algorithms.reward_scale import RewardScale


def segments(num: int) -> list[Segment]:
    return [make_segment(make_policy(), seed=seed, turns=0.0) for seed in range(num)]


def plain(parts: list[Segment], gamma: float) -> float:
    """Step by step, row by row."""
    squares = []
    for row in range(parts[0].num_rows):
        total = 0.0
        for part in parts:
            for step in range(part.num_steps):
                if part.first[step, row]:
                    total = 0.0
                total = gamma * total + float(part.reward[step, row])
                if part.active[step, row]:
                    squares.append(total**2)
    return float(np.sqrt(np.mean(squares)))


def test_the_scale_is_the_root_mean_square_of_discounted_returns_across_segments() -> None:
    scale, parts = RewardScale(0.9), segments(3)
    for part in parts:
        scale.observe(part, "a")
    np.testing.assert_allclose(scale.value, plain(parts, 0.9), rtol=1e-9)


def test_streams_have_returns_of_their_own_and_a_restored_scale_goes_on() -> None:
    parts = segments(4)
    whole, early, late = RewardScale(0.9), RewardScale(0.9), RewardScale(0.9)
    for number, part in enumerate(parts):
        whole.observe(part, "ab"[number % 2])
        if number < 2:
            early.observe(part, "ab"[number % 2])
    late.restore(data.decode(data.encode(early.save())))
    for number, part in enumerate(parts[2:]):
        late.observe(part, "ab"[number % 2])
    assert late.value == whole.value


def test_without_any_reward_the_scale_is_1() -> None:
    scale, (part,) = RewardScale(0.9), segments(1)
    part.reward[:] = 0.0
    scale.observe(part, "a")
    assert scale.value == 1.0


@pytest.mark.parametrize("factor", [1e-3, 1e6])
def test_an_update_is_the_same_whatever_the_size_of_rewards(factor: float) -> None:
    def learn(size: float) -> np.ndarray:
        policy = make_policy(head="epsilon_greedy")
        learner = ReplayLearner(DQN(DQNConfig(batch_size=5, normalise_obs=False)), policy, seed=1)
        segment = make_segment(make_policy(), turns=0.0)
        segment.reward *= np.float32(size)
        learner.observe(segment, "a")
        batch = Transitions(
            obs=segment.obs[0], action=segment.action[0], reward=segment.reward[0], next_obs=segment.obs[1],
            discount=np.full(5, 0.9, np.float32),
        )  # fmt: skip
        learner.update(Replayed(batch))
        return np.concatenate([array.ravel() for array in learner.policy.weights().values()])

    np.testing.assert_allclose(learn(factor), learn(1.0), atol=1e-5)
