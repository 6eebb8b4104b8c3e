"""Worlds of several agents: padding, turns, rewards out of turn, leaving."""

from pathlib import Path

import numpy as np
import pytest

from ludus import envs
from ludus.data import Discrete
from ludus.errors import EnvError

GAMES = Path(__file__).parent / "games.py"


def test_agents_that_differ_are_padded():
    worlds = envs.make(f"{GAMES}:leaving", 2)
    assert worlds.spec.agents == ("a", "b", "c")
    assert worlds.spec.obs.shape == (4,)
    assert worlds.spec.action == Discrete(4)
    now = worlds.reset(seed=1)
    assert (now.obs != 0).sum(axis=1).tolist() == [2, 3, 4, 2, 3, 4]
    assert now.mask.sum(axis=1).tolist() == [2, 3, 4, 2, 3, 4]
    assert not now.mask[0, 2:].any()


def test_agents_that_differ_otherwise_are_refused():
    with pytest.raises(EnvError, match=r"a has Discrete.*b has Continuous"):
        envs.make(f"{GAMES}:leaving", 1, kinds="odd")


@pytest.mark.parametrize("pension", [None, 5.0], ids=["", "and gets nothing more"])
def test_an_agent_that_leaves_is_inactive_until_the_next_episode(pension):
    worlds = envs.make(f"{GAMES}:leaving", 1, pension=pension)
    worlds.reset(seed=1)
    seen = []
    for _ in range(6):
        now = worlds.step(np.array([1, 1, 1]))
        seen.append((now.active.tolist(), now.terminated.tolist(), now.reward.tolist(), now.first.any()))
    assert seen == [
        ([True, True, True], [False, False, False], [1, 1, 1], False),
        ([False, True, True], [True, False, False], [1, 1, 1], False),
        ([False, False, True], [False, True, False], [0, 1, 1], False),
        ([False, False, False], [False, False, True], [0, 0, 1], False),
        ([True, True, True], [False, False, False], [0, 0, 0], True),
        ([True, True, True], [False, False, False], [1, 1, 1], False),
    ]


def test_agents_that_take_turns_are_active_in_turn_and_rewarded_meanwhile():
    worlds = envs.make(f"{GAMES}:rounds", 1)
    now = worlds.reset(seed=1)
    assert now.active.tolist() == [True, False]
    seen = []
    for _ in range(7):
        now = worlds.step(np.argmax(now.mask, axis=1))
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
    assert worlds.statistics().num_episodes == 1
    assert worlds.statistics().num_failures == 0


def test_the_loser_of_connect_four_is_told_when_the_winner_moves():
    worlds = envs.make("pettingzoo:connect_four_v3", 1)
    worlds.reset(seed=1)
    for column in (0, 1, 0, 1, 0, 1, 0):
        now = worlds.step(np.array([column, column]))
    assert now.reward.tolist() == [1.0, -1.0]
    assert now.terminated.tolist() == [True, True]
    assert not now.active.any()
    assert worlds.step(np.array([0, 0])).first.all()


def test_a_full_column_is_masked():
    worlds = envs.make("pettingzoo:connect_four_v3", 1)
    worlds.reset(seed=1)
    for _ in range(6):
        now = worlds.step(np.array([3, 3]))
    assert now.mask[np.flatnonzero(now.active)[0]].tolist() == [True, True, True, False, True, True, True]


def test_the_state_of_the_whole_world_is_told_where_there_is_one():
    worlds = envs.make("mpe2:simple_spread_v3", 2)
    now = worlds.reset(seed=1)
    assert worlds.spec.state.shape == (54,)
    assert now.state.shape == (2, 54)
    np.testing.assert_array_equal(now.state[1], now.obs[3:6].ravel())
