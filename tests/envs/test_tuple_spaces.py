"""Level-based foraging and robotic warehouses: the contract, and how episodes end."""

import importlib
from functools import partial

import gymnasium
import numpy as np

from ludus import envs
from ludus.envs import seeds
from ludus.testing.raw_envs import RawStep
from ludus.testing.vector_envs import RandomPlayer, VectorEnvConformance

FORAGING, WAREHOUSE = "Foraging-8x8-2p-2f-coop-v3", "rware-tiny-2ag-v2"


class RawTuples:
    """The library's own env, a new one for each episode; `is_done` says whether its goal is reached."""

    def __init__(self, library, env_id, seed, is_done, **limit):
        importlib.import_module(library)
        entry = gymnasium.registry[env_id]
        creator = gymnasium.envs.registration.load_env_creator(entry.entry_point)
        self.open_env = partial(creator, **entry.kwargs | limit)
        self.seed, self.is_done = seed, is_done

    def begin(self, episode):
        self.env = self.open_env()
        return dict(enumerate(self.env.reset(seed=seeds.derived(self.seed, 0, episode))[0]))

    def step(self, action):
        obs, rewards, is_over, _, _ = self.env.step(action.tolist())
        rows = range(len(obs))
        return RawStep(
            seen=dict(enumerate(obs)),
            is_over=is_over,
            reward=dict(enumerate(rewards)),
            terminated=dict.fromkeys(rows, is_over and self.is_done(self.env)),
            truncated=dict.fromkeys(rows, is_over and not self.is_done(self.env)),
            mask={},
        )

    def close(self):
        self.env.close()


class TestForaging(VectorEnvConformance):
    num_envs, num_steps = 2, 40

    def make(self, num_envs):
        return envs.make(f"lbforaging:{FORAGING}", num_envs, max_episode_steps=15)

    def raw(self, seed):
        return RawTuples("lbforaging", FORAGING, seed, lambda env: not env.field.any(), max_episode_steps=15)


class TestWarehouse(VectorEnvConformance):
    num_envs, num_steps = 2, 40

    def make(self, num_envs):
        return envs.make(f"rware:{WAREHOUSE}", num_envs, max_steps=15)

    def raw(self, seed):
        return RawTuples("rware", WAREHOUSE, seed, lambda env: False, max_steps=15)


def test_the_state_is_what_all_agents_observe():
    env = envs.make(f"lbforaging:{FORAGING}", 3)
    player, now = RandomPlayer(env.spec, seed=0), env.reset(seed=1)
    assert env.spec.agents == ("agent_0", "agent_1")
    for _ in range(5):
        assert np.array_equal(now.global_state, now.obs.reshape(3, -1))
        now = env.step(player(now))


def test_food_that_is_all_eaten_terminates_an_episode_and_each_agent_has_its_own_reward():
    """One agent beside the last food, and strong enough for it; the other is far away."""
    env = envs.make("lbforaging:Foraging-5x5-2p-1f-v3", 1, max_food_level=1)
    now = env.reset(seed=1)
    for seed in range(2, 200):
        food, one = now.obs[0, :2], now.obs[0, 3:5]
        if np.abs(food - one).sum() == 1:
            break
        now = env.reset(seed=seed)
    now = env.step(np.array([5, 0]))  # the first loads
    assert now.reward.tolist() == [1.0, 0.0]
    assert now.terminated.all()
    assert not now.truncated.any()


def test_arguments_go_to_the_class_of_the_library():
    assert envs.spec(f"lbforaging:{FORAGING}", observe_agent_levels=False).obs.shape == (10,)
