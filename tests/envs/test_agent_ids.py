"""Agents that see which one they are: the contract, vectors, other observations, single agents."""

from __future__ import annotations

import numpy as np
import pytest

from ludus import envs
from ludus.core import VectorEnv
from ludus.data.spec import ArraySpec
from ludus.testing.vector_envs import VectorEnvConformance


class TestVectorsWithIds(VectorEnvConformance):
    def make(self, num_envs: int) -> VectorEnv:
        return envs.make("matrix:two_step", num_envs, agent_ids=True)


class TestOthersWithIds(VectorEnvConformance):
    num_steps = 40

    def make(self, num_envs: int) -> VectorEnv:
        return envs.make("pettingzoo:tictactoe_v3", num_envs, agent_ids=True)


def test_a_one_hot_of_the_agent_follows_what_it_sees() -> None:
    with_ids, without = (envs.make("mpe2:simple_spread_v3", 2, agent_ids=ids) for ids in (True, False))
    seen, plain = with_ids.reset(seed=3), without.reset(seed=3)
    for _ in range(3):
        assert np.array_equal(seen.obs[:, :18], plain.obs)
        assert np.array_equal(seen.obs[:, 18:], np.tile(np.eye(3), (2, 1)))
        assert np.array_equal(seen.global_state, plain.global_state)
        action = np.arange(6) % 5
        seen, plain = with_ids.step(action), without.step(action)
    assert with_ids.spec.obs.shape == (21,)
    assert envs.spec("mpe2:simple_spread_v3", agent_ids=True) == with_ids.spec


def test_other_observations_get_it_as_a_part() -> None:
    spec = envs.spec("pettingzoo:tictactoe_v3", agent_ids=True)
    plain = envs.spec("pettingzoo:tictactoe_v3")
    assert spec.obs == {"agent": ArraySpec((2,), np.float32, 0.0, 1.0), "obs": plain.obs}
    now = envs.make("pettingzoo:tictactoe_v3", 2, agent_ids=True).reset(seed=0)
    assert now.obs["agent"].tolist() == [[1, 0], [0, 1]] * 2


def test_bounds_stay_what_they_are() -> None:
    spec = envs.spec("matrix:climbing", agent_ids=True)
    assert spec.obs == ArraySpec((3,), np.float32, 0.0, 1.0)


@pytest.mark.parametrize("agent_ids", [False, True])
def test_a_single_agent_needs_none(agent_ids: bool) -> None:
    assert envs.spec("CartPole-v1", agent_ids=agent_ids).obs.shape == (4,)


def test_a_search_is_not_given_rules_that_do_not_show_the_ids() -> None:
    assert envs.rules("board:tic_tac_toe", agent_ids=True) is None
    assert envs.rules("board:tic_tac_toe") is not None
