"""What save and restore promise beyond the conformance kit."""

from pathlib import Path

import numpy as np
import pytest

from ludus import data, envs
from ludus.envs import attributes
from ludus.envs.action_log import ActionLog
from ludus.errors import EnvError
from ludus.testing.vector_envs import RandomPlayer, assert_same, copied

GAMES = Path(__file__).parent / "games.py"


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "LunarLander-v3", "pettingzoo:connect_four_v3"])
def test_fresh_envs_go_on_where_others_were_saved(name):
    one, other = envs.make(name, 4), envs.make(name, 4)
    player = RandomPlayer(one.spec, seed=0)
    now = one.reset(seed=5)
    for _ in range(100):
        now = one.step(player(now))
    saved = data.decode([bytes(frame) for frame in data.encode(one.save())])
    actions, moments = [], []
    for _ in range(50):
        actions.append(player(now).copy())
        now = one.step(actions[-1])
        moments.append(copied(now))
    other.restore(saved)
    assert_same(moments, [copied(other.step(action)) for action in actions])
    assert one.statistics() == other.statistics()


def test_atari_in_a_loop_is_seen_as_in_its_vector_and_can_be_restored():
    one, other = (
        envs.make("ALE/Pong-v5", 1, vectorization="loop", max_num_frames_per_episode=24, noop_max=2) for _ in range(2)
    )
    assert one.spec == envs.spec("ALE/Pong-v5")
    player = RandomPlayer(one.spec, seed=0)
    now = one.reset(seed=1)
    assert now.obs.shape == (1, 4, 84, 84)
    moments = [copied(now := one.step(player(now))) for _ in range(12)]
    assert any(moment["truncated"].any() for moment in moments)
    assert_same(moments[-1:], [copied(other.restore(one.save()))])
    action = player(now)
    assert_same([copied(one.step(action))], [copied(other.step(action))])


def test_an_env_that_is_not_deterministic_is_not_restored():
    one, other = (envs.make(f"{GAMES}:counting", 2, wild=True) for _ in range(2))
    one.reset(seed=1)
    one.step(np.zeros(2, np.int64))
    with pytest.raises(EnvError, match="not deterministic"):
        other.restore(one.save())


def test_another_number_of_envs_is_refused():
    for name in ("CartPole-v1", "Acrobot-v1"):
        one = envs.make(name, 2)
        one.reset(seed=1)
        with pytest.raises(EnvError, match="2 envs"):
            envs.make(name, 3).restore(one.save())


def test_native_groups_that_do_not_tell_save_nothing():
    vector_env = envs.make("envpool:CartPole-v1", 2)
    vector_env.reset(seed=1)
    assert vector_env.save() is None
    vector_env.close()


def test_attributes_round_trip_through_the_codec():
    class Thing:
        pass

    thing, other = Thing(), Thing()
    thing.rng = np.random.default_rng(3)
    thing.big = 1 << 100
    thing.number, thing.text, thing.nothing, thing.flag = 1.5, "x", None, True
    thing.array = np.arange(3)
    thing.nest = {"a": [1, (2, np.ones(2))]}
    saved = data.decode([bytes(frame) for frame in data.encode(attributes.saved(thing))])
    drawn = thing.rng.random(4)
    attributes.restore(other, saved)
    np.testing.assert_array_equal(other.rng.random(4), drawn)
    assert other.big == 1 << 100
    assert (other.number, other.text, other.nothing, other.flag) == (1.5, "x", None, True)
    np.testing.assert_array_equal(other.array, thing.array)
    np.testing.assert_array_equal(other.nest["a"][1][1], np.ones(2))


def test_an_attribute_without_a_form_means_nothing_is_saved():
    class Thing:
        pass

    thing = Thing()
    thing.file = object()
    assert attributes.saved(thing) is None
    assert attributes.saved(thing, fixed=(object,)) == {}


def test_the_action_log_grows_and_forgets():
    log = ActionLog(2, 1, data.Discrete(9000).array)
    for step in range(5000):
        if step % 100 == 0:
            log.begin(0)
        if step == 3000:
            log.begin(1)
        log.append(np.array([step, step]))
    assert log.actions(0).ravel().tolist() == list(range(4900, 5000))
    assert log.actions(1).ravel().tolist() == list(range(3000, 5000))
    other = ActionLog(2, 1, data.Discrete(9000).array)
    other.restore(*log.save())
    np.testing.assert_array_equal(other.actions(1), log.actions(1))
    np.testing.assert_array_equal(other.actions(0), log.actions(0))
