"""Repositioning: the contract, plain loops that it must equal, and what its numbers promise."""

import numpy as np
import pytest

from ludus import envs
from ludus.envs import seeds
from ludus.errors import EnvError
from ludus.testing.vector_envs import RandomPlayer, VectorEnvConformance

from .plain_repositioning import PlainRepositioning

NAME = "scenario:repositioning"


class TestRepositioning(VectorEnvConformance):
    num_steps = 60

    def make(self, num_envs):
        return envs.make(NAME, num_envs, num_ticks=25)


@pytest.mark.parametrize(
    "settings",
    [{}, {"num_containers": 300, "space": 20}, {"num_containers": 4000, "swing": 2.0, "orders_per_tick": 90}],
)
def test_it_is_what_plain_loops_say(settings):
    settings = {"num_ticks": 40, "team_share": 0.0, **settings}
    vector_env = envs.make(NAME, 3, **settings)
    player, now = RandomPlayer(vector_env.spec, seed=0), vector_env.reset(seed=5)
    plain = [PlainRepositioning(seeds.derived(5, env, 0), **settings) for env in range(3)]
    episode, num_compared = [0, 0, 0], 0
    for _ in range(70):
        for env, game in enumerate(plain):
            rows = range(6 * env, 6 * env + 6)
            assert now.active[rows].tolist() == [port in game.at and not game.is_over for port in range(6)]
            np.testing.assert_allclose(now.obs[rows], [game.obs(port) for port in range(6)], atol=1e-5)
            np.testing.assert_allclose(now.global_state[env], game.state(), atol=1e-5)
            assert now.mask[rows].tolist() == [game.mask(port) for port in range(6)]
            assert now.terminated[rows].tolist() == 6 * [game.is_over]
        action = player(now)
        now = vector_env.step(action)
        for env, game in enumerate(plain):
            if game.is_over:
                episode[env] += 1
                plain[env] = PlainRepositioning(seeds.derived(5, env, episode[env]), **settings)
                assert not now.reward[6 * env : 6 * env + 6].any()
                continue
            rewards = game.step(action[6 * env : 6 * env + 6])
            np.testing.assert_allclose(now.reward[6 * env : 6 * env + 6], 6 * np.array(rewards), rtol=1e-5)
            num_compared += 1
    assert num_compared > 150
    assert min(episode) > 0


def play(vector_env, choose):
    """Of the first episode of each env: the rewards of all steps, `[steps, envs, ports]`, and what was done in them."""
    now, rewards, actions = vector_env.reset(seed=3), [], []
    while now.active.any():
        actions.append(choose(now))
        now = vector_env.step(actions[-1])
        rewards.append(now.reward.reshape(vector_env.num_envs, -1).copy())
    return np.array(rewards), np.array(actions)


def test_the_reward_of_the_team_is_the_mean_over_ports_whatever_the_share_of_each():
    """One env, so that all of it is one episode."""
    own, actions = play(envs.make(NAME, 1, team_share=0.0), RandomPlayer(envs.spec(NAME), seed=0))
    for share in (0.5, 1.0):
        done = iter(actions)
        rewards, _ = play(envs.make(NAME, 1, team_share=share), lambda now, done=done: next(done))
        mean = own.mean(axis=2, keepdims=True)
        np.testing.assert_allclose(rewards, share * mean + (1 - share) * own, rtol=1e-4, atol=1e-5)


def test_with_containers_and_space_for_everything_the_return_is_all_that_is_ordered():
    vector_env = envs.make(NAME, 1, num_containers=900_000)
    rewards, _ = play(vector_env, lambda now: np.zeros(len(now.active), np.int64))
    assert rewards.mean(axis=2).sum() == pytest.approx(vector_env.ordered()[0], rel=1e-4)
    assert vector_env.ordered()[0] == pytest.approx(100.0, abs=5)


def test_without_containers_every_order_is_short():
    vector_env = envs.make(NAME, 1, num_containers=0)
    rewards, _ = play(vector_env, lambda now: np.zeros(len(now.active), np.int64))
    assert rewards.mean(axis=2).sum() == pytest.approx(-vector_env.ordered()[0], rel=1e-4)


def test_no_container_is_lost_or_made():
    vector_env = envs.make(NAME, 4, num_containers=1234)
    player, now = RandomPlayer(vector_env.spec, seed=0), vector_env.reset(seed=3)
    for _ in range(200):
        state = 100 * now.global_state.astype(np.float64)
        of_ports = state[:, :66].reshape(4, 6, 11)
        at_ports = of_ports[:, :, [0, 1]].sum(axis=(1, 2)) + state[:, 66:102].sum(axis=1)
        aboard = state[:, 102 : 102 + 6 + 36].sum(axis=1)
        np.testing.assert_allclose(at_ports + aboard, 1234, atol=1e-2)
        now = vector_env.step(player(now))


def test_several_ports_may_decide_at_once_and_seldom_all_of_them():
    vector_env = envs.make(NAME, 8)
    player, now, seen = RandomPlayer(vector_env.spec, seed=0), vector_env.reset(seed=3), set()
    for _ in range(100):
        seen |= set(now.active.reshape(8, 6).sum(axis=1).tolist())
        now = vector_env.step(player(now))
    assert {1, 2, 3} <= seen
    assert 6 not in seen


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("scenario:repositionin", {}, "Did you mean 'repositioning'"),
        (NAME, {"num_tick": 3}, "Did you mean 'num_ticks'"),
        (NAME, {"num_ticks": 0}, "num_ticks=0 must be a whole number, at least 1"),
        (NAME, {"space": 1.5}, r"space=1\.5 must be a whole number"),
        (NAME, {"bias": "much"}, "bias='much' must be a number"),
        (NAME, {"bias": float("nan")}, "bias=nan must be a number"),
        (NAME, {"team_share": 1.1}, "at most 1"),
        (NAME, {"orders_per_tick": 0}, "above 0"),
    ],
)
def test_what_is_no_scenario_is_refused(name, kwargs, message):
    with pytest.raises(EnvError, match=message):
        envs.make(name, 1, **kwargs)


@pytest.mark.parametrize("choice", [-1, 9])
def test_an_action_that_there_is_not_is_refused_unless_the_port_has_no_vessel(choice):
    vector_env = envs.make(NAME, 2)
    now = vector_env.reset(seed=1)
    some = np.where(now.active, 0, choice)
    now = vector_env.step(some)
    some = np.where(now.active, 0, choice)
    some[np.flatnonzero(now.active)[-1]] = choice
    with pytest.raises(EnvError, match=rf"{choice} of port_\d in env 1 is no action"):
        vector_env.step(some)
