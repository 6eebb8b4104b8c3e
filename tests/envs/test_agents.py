"""Envs of several agents: padding, turns, rewards out of turn, leaving."""

from pathlib import Path

import numpy as np
import pytest

from ludus import envs
from ludus.data import Discrete
from ludus.errors import EnvError

GAMES = Path(__file__).parent / "games.py"


def test_agents_that_differ_are_padded():
    vector_env = envs.make(f"{GAMES}:leaving", 2)
    assert vector_env.spec.agents == ("a", "b", "c")
    assert vector_env.spec.obs.shape == (4,)
    assert vector_env.spec.action == Discrete(4)
    now = vector_env.reset(seed=1)
    assert (now.obs != 0).sum(axis=1).tolist() == [2, 3, 4, 2, 3, 4]
    assert now.mask.sum(axis=1).tolist() == [2, 3, 4, 2, 3, 4]
    assert not now.mask[0, 2:].any()


def test_agents_that_differ_otherwise_are_refused():
    with pytest.raises(EnvError, match=r"a has Discrete.*b has Continuous"):
        envs.make(f"{GAMES}:leaving", 1, kinds="invalid")


@pytest.mark.parametrize("pension", [None, 5.0], ids=["", "and gets nothing more"])
def test_an_agent_that_leaves_is_inactive_until_the_next_episode(pension):
    vector_env = envs.make(f"{GAMES}:leaving", 1, pension=pension)
    vector_env.reset(seed=1)
    seen = []
    for _ in range(6):
        now = vector_env.step(np.array([1, 1, 1]))
        seen.append((now.active.tolist(), now.terminated.tolist(), now.reward.tolist(), now.first.any()))
    assert seen == [
        ([True, True, True], [False, False, False], [1, 1, 1], False),
        ([False, True, True], [True, False, False], [1, 1, 1], False),
        ([False, False, True], [False, True, False], [0, 1, 1], False),
        ([False, False, False], [False, False, True], [0, 0, 1], False),
        ([True, True, True], [False, False, False], [0, 0, 0], True),
        ([True, True, True], [False, False, False], [1, 1, 1], False),
    ]


def test_agents_that_take_turns_are_active_in_turn_and_rewarded_in_between():
    vector_env = envs.make(f"{GAMES}:rounds", 1)
    now = vector_env.reset(seed=1)
    assert now.active.tolist() == [True, False]
    seen = []
    for _ in range(7):
        now = vector_env.step(np.argmax(now.mask, axis=1))
        seen.append((now.active.tolist(), now.terminated.tolist(), now.reward.tolist(), now.obs.ravel().tolist()))
    assert seen == [
        ([False, True], [False, False], [1, -1], [1, 1]),
        ([True, False], [False, False], [-1, 1], [2, 2]),
        ([False, True], [False, False], [1, -1], [3, 3]),
        ([True, False], [False, True], [-1, 1], [4, 4]),
        ([True, False], [False, False], [1, 0], [5, 4]),
        ([False, False], [True, False], [1, 0], [6, 4]),
        ([True, False], [False, False], [0, 0], [0, 0]),
    ]
    assert vector_env.statistics().num_episodes == 1
    assert vector_env.statistics().num_failures == 0


def test_the_loser_of_connect_four_is_notified_when_the_winner_moves():
    vector_env = envs.make("pettingzoo:connect_four_v3", 1)
    vector_env.reset(seed=1)
    for column in (0, 1, 0, 1, 0, 1, 0):
        now = vector_env.step(np.array([column, column]))
    assert now.reward.tolist() == [1.0, -1.0]
    assert now.terminated.tolist() == [True, True]
    assert not now.active.any()
    assert vector_env.step(np.array([0, 0])).first.all()


def test_a_full_column_is_masked():
    vector_env = envs.make("pettingzoo:connect_four_v3", 1)
    vector_env.reset(seed=1)
    for _ in range(6):
        now = vector_env.step(np.array([3, 3]))
    assert now.mask[np.flatnonzero(now.active)[0]].tolist() == [True, True, True, False, True, True, True]


def test_the_state_of_the_whole_env_is_reported_where_there_is_one():
    vector_env = envs.make("mpe2:simple_spread_v3", 2)
    now = vector_env.reset(seed=1)
    assert vector_env.spec.global_state.shape == (54,)
    assert now.global_state.shape == (2, 54)
    np.testing.assert_array_equal(now.global_state[1], now.obs[3:6].ravel())
