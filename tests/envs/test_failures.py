"""An env that raises is restarted; an env that only raises ends the run."""

import logging
import signal
from pathlib import Path

import numpy as np
import pytest

from ludus import envs
from ludus.core import EnvSpec
from ludus.data import ArraySpec, Discrete
from ludus.envs.native import NativeVectorEnv
from ludus.errors import EnvError

GAMES = Path(__file__).parent / "games.py"
NOTHING = np.zeros(2, np.int64)


def test_an_env_that_raises_is_restarted_and_its_rows_have_failed(caplog):
    vector_env = envs.make(f"{GAMES}:raises_now_and_then", 2, num_good=3)
    vector_env.reset(seed=1)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            now = vector_env.step(NOTHING)
            assert not now.failed.any()
        now = vector_env.step(NOTHING)
    assert now.failed.all()
    assert now.first.all()
    assert now.active.all()
    assert not now.reward.any()
    assert now.obs[:, 0].tolist() == [0.0, 0.0]
    stats = vector_env.statistics()
    assert stats.num_failures == 2
    assert "RuntimeError: it is worn out" in stats.last_failure
    assert "step 4" in stats.last_failure
    assert len(caplog.records) == 1, "the second of the same type is only counted"
    assert "Traceback" in caplog.text
    now = vector_env.step(NOTHING)
    assert not now.failed.any()
    assert not now.first.any()


INVALID = {
    "a reward of nan": "a reward is nan",
    "a reward of inf": "a reward is inf",
    "no reward": "None is read as nan",
    "nan": "the observation holds nan",
    "inf": "the observation holds -inf",
    "a place outside": "holds 7, which its space does not have: it goes from 0 to 3",
    "an exit": "SystemExit: 3",
}


@pytest.mark.parametrize("what", sorted(INVALID))
def test_an_env_that_gives_what_nobody_can_learn_from_has_failed(what, caplog):
    vector_env = envs.make(f"{GAMES}:invalid", 2, what=what)
    vector_env.reset(seed=1)
    for _ in range(2):
        for _good in range(2):
            assert not vector_env.step(NOTHING).failed.any()
        now = vector_env.step(NOTHING)
        assert now.failed.all()
        assert now.first.all()
        assert now.active.all()
        assert np.isfinite(now.obs).all()
        assert not now.reward.any()
    stats = vector_env.statistics()
    assert stats.num_failures == 4
    assert stats.num_steps == 8
    assert INVALID[what] in stats.last_failure
    assert "step 3)" in stats.last_failure
    assert len(caplog.records) == 1


@pytest.mark.parametrize("what", [*sorted(INVALID), "one number"])
def test_an_env_that_never_gives_anything_else_is_given_up(what):
    vector_env = envs.make(f"{GAMES}:invalid", 2, what=what, at=1)
    vector_env.reset(seed=1)
    with pytest.raises(EnvError, match=r"games.py:invalid .*failure 10 without a good step") as raised:
        for _ in range(10):
            vector_env.step(NOTHING)
    assert INVALID.get(what, "has the shape (), where its space has (3,)") in str(raised.value)


@pytest.mark.parametrize(
    ("what", "message"), [("nan", "holds nan"), ("one number", "the shape"), ("a place outside", "7")]
)
def test_an_env_that_begins_with_an_invalid_observation_cannot_be_reset(what, message):
    with pytest.raises(EnvError, match=rf"games.py:invalid cannot be reset.*{message}"):
        envs.make(f"{GAMES}:invalid", 1, what=what, at=0).reset(seed=1)


def test_an_exit_that_a_signal_asks_for_is_not_taken_for_the_envs_own():
    def handle(number, frame):
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        vector_env = envs.make(f"{GAMES}:invalid", 1, what="a signal", at=1)
        vector_env.reset(seed=1)
        with pytest.raises(SystemExit):
            vector_env.step(NOTHING[:1])
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_environment_with_the_old_interface_is_refused_with_a_reason():
    with pytest.raises(EnvError, match=r"games.py:old gave a ndarray when it was reset.*\(observation, info\)"):
        envs.make(f"{GAMES}:old", 1)


class Bank:
    """A group that steps by itself; the third reward of its second env is no number."""

    def __init__(self):
        self.steps = 0

    def reset(self, seed):
        self.steps = 0
        return np.zeros((2, 1), np.float32)

    def send(self, action):
        self.steps += 1

    def recv(self):
        reward = np.array([3e38, np.nan if self.steps == 3 else 3e38], np.float32)
        return np.zeros((2, 1), np.float32), reward, np.zeros(2, np.bool_), np.zeros(2, np.bool_)

    def close(self): ...


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_native_group_with_a_reward_that_is_no_number_is_made_again():
    vector_env = NativeVectorEnv(EnvSpec(name="bank", obs=ArraySpec((1,), np.float32), action=Discrete(2)), 2, Bank)
    vector_env.reset(seed=1)
    failed = [bool(vector_env.step(NOTHING).failed.all()) for _ in range(6)]
    assert failed == [False, False, True, False, False, True]
    assert "the group of bank failed: a reward is nan" in vector_env.statistics().last_failure


def test_what_comes_after_a_failure_is_repeatable():
    def play():
        vector_env = envs.make(f"{GAMES}:raises_now_and_then", 2, num_good=4)
        vector_env.reset(seed=1)
        return [vector_env.step(NOTHING).obs.copy() for _ in range(20)]

    np.testing.assert_array_equal(play(), play())


def test_ten_failures_in_a_row_raise_with_the_last_traceback():
    vector_env = envs.make(f"{GAMES}:counting", 2, raise_at=1)
    vector_env.reset(seed=1)
    for _ in range(9):
        assert vector_env.step(NOTHING).failed.all()
    with pytest.raises(EnvError, match="failure 10 without a good step") as raised:
        vector_env.step(NOTHING)
    assert "Traceback" in str(raised.value)
    assert "the game broke" in str(raised.value)


def test_an_env_that_cannot_be_reset_at_the_start_raises_at_once():
    with pytest.raises(EnvError, match="the screen is gone"):
        envs.make(f"{GAMES}:counting", 2, raise_in_reset=True).reset(seed=1)


def test_a_native_group_that_raises_is_made_again_as_a_whole(caplog):
    vector_env = envs.make("CartPole-v1", 2)
    vector_env.reset(seed=1)
    vector_env.step(NOTHING)
    now = vector_env.step(np.full(2, 7))  # the library asserts that actions are 0 or 1
    assert now.failed.all()
    assert now.first.all()
    assert now.active.all()
    assert vector_env.statistics().num_failures == 1
    assert "the group" in vector_env.statistics().last_failure
    assert not vector_env.step(NOTHING).failed.any()
    with pytest.raises(EnvError, match="failure 10"):
        for _ in range(10):
            vector_env.step(np.full(2, 7))


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1"])
def test_actions_that_are_not_one_for_each_row_are_the_callers_mistake(name):
    vector_env = envs.make(name, 2)
    vector_env.reset(seed=1)
    with pytest.raises(EnvError):
        vector_env.step(np.zeros(3, np.int64))
    assert vector_env.statistics().num_failures == 0


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1"])
def test_send_and_recv_take_turns(name):
    vector_env = envs.make(name, 2)
    vector_env.reset(seed=1)
    with pytest.raises(EnvError, match="nothing to `recv`"):
        vector_env.recv()
    vector_env.send(NOTHING)
    with pytest.raises(EnvError, match="under way"):
        vector_env.send(NOTHING)


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1"])
def test_closed_envs_say_so(name):
    vector_env = envs.make(name, 2)
    vector_env.close()
    with pytest.raises(EnvError, match="closed"):
        vector_env.reset(seed=1)
