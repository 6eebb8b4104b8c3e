"""A world that raises is begun anew; a world that only raises ends the run."""

import logging
from pathlib import Path

import numpy as np
import pytest

from ludus import envs
from ludus.errors import EnvError

GAMES = Path(__file__).parent / "games.py"
NOTHING = np.zeros(2, np.int64)


def test_a_world_that_raises_is_begun_anew_and_its_rows_have_failed(caplog):
    worlds = envs.make(f"{GAMES}:raises_now_and_then", 2, num_good=3)
    worlds.reset(seed=1)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            now = worlds.step(NOTHING)
            assert not now.failed.any()
        now = worlds.step(NOTHING)
    assert now.failed.all()
    assert now.first.all()
    assert now.active.all()
    assert not now.reward.any()
    assert now.obs[:, 0].tolist() == [0.0, 0.0]
    told = worlds.statistics()
    assert told.num_failures == 2
    assert "RuntimeError: it is worn out" in told.last_failure
    assert "step 4" in told.last_failure
    assert len(caplog.records) == 1, "the second of the same type is only counted"
    assert "Traceback" in caplog.text
    now = worlds.step(NOTHING)
    assert not now.failed.any()
    assert not now.first.any()


def test_what_comes_after_a_failure_is_repeatable():
    def play():
        worlds = envs.make(f"{GAMES}:raises_now_and_then", 2, num_good=4)
        worlds.reset(seed=1)
        return [worlds.step(NOTHING).obs.copy() for _ in range(20)]

    np.testing.assert_array_equal(play(), play())


def test_ten_failures_in_a_row_raise_with_the_last_traceback():
    worlds = envs.make(f"{GAMES}:counting", 2, raise_at=1)
    worlds.reset(seed=1)
    for _ in range(9):
        assert worlds.step(NOTHING).failed.all()
    with pytest.raises(EnvError, match="failure 10 without a good step") as raised:
        worlds.step(NOTHING)
    assert "Traceback" in str(raised.value)
    assert "the game broke" in str(raised.value)


def test_a_world_that_cannot_be_reset_at_the_start_raises_at_once():
    with pytest.raises(EnvError, match="the screen is gone"):
        envs.make(f"{GAMES}:counting", 2, raise_in_reset=True).reset(seed=1)


def test_a_native_group_that_raises_is_made_anew_as_a_whole(caplog):
    worlds = envs.make("CartPole-v1", 2)
    worlds.reset(seed=1)
    worlds.step(NOTHING)
    now = worlds.step(np.full(2, 7))  # the library asserts that actions are 0 or 1
    assert now.failed.all()
    assert now.first.all()
    assert now.active.all()
    assert worlds.statistics().num_failures == 1
    assert "the group" in worlds.statistics().last_failure
    assert not worlds.step(NOTHING).failed.any()
    with pytest.raises(EnvError, match="failure 10"):
        for _ in range(10):
            worlds.step(np.full(2, 7))


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1"])
def test_actions_that_are_not_one_for_each_row_are_the_callers_mistake(name):
    worlds = envs.make(name, 2)
    worlds.reset(seed=1)
    with pytest.raises(EnvError):
        worlds.step(np.zeros(3, np.int64))
    assert worlds.statistics().num_failures == 0


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1"])
def test_send_and_recv_take_turns(name):
    worlds = envs.make(name, 2)
    worlds.reset(seed=1)
    with pytest.raises(EnvError, match="nothing to `recv`"):
        worlds.recv()
    worlds.send(NOTHING)
    with pytest.raises(EnvError, match="under way"):
        worlds.send(NOTHING)


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1"])
def test_closed_worlds_say_so(name):
    worlds = envs.make(name, 2)
    worlds.close()
    with pytest.raises(EnvError, match="closed"):
        worlds.reset(seed=1)
