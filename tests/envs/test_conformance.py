"""Every adapter keeps the contract of `core.VectorEnv`."""

import re
from pathlib import Path

import envpool
import gymnasium
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from mpe2 import simple_speaker_listener_v4, simple_spread_v3
from pettingzoo.classic import connect_four_v3

from ludus import envs
from ludus.data.lookup import load_attribute
from ludus.envs.seeds import derived, spread
from ludus.testing.raw_envs import RawAgents, RawEnv, RawVectorEnv
from ludus.testing.vector_envs import VectorEnvConformance

from . import games

GAMES = Path(__file__).parent / "games.py"
PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def raw_pool(task, seed, **settings):
    """EnvPool takes its seeds when it is made."""
    pool = envpool.make_gymnasium(task, num_envs=1, seed=spread(derived(seed, 0), 1), **settings)
    return RawVectorEnv(pool, None)


class TestCartPoleVector(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("CartPole-v1", num_envs)

    def raw(self, seed):
        return RawVectorEnv(gymnasium.make_vec("CartPole-v1", 1, "vector_entry_point"), derived(seed, 0))


class TestCartPoleLoop(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("CartPole-v1", num_envs, vectorization="loop")

    def raw(self, seed):
        return RawEnv(gymnasium.make("CartPole-v1"), seed)


class TestAcrobot(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("Acrobot-v1", num_envs, max_episode_steps=40)

    def raw(self, seed):
        return RawEnv(gymnasium.make("Acrobot-v1", max_episode_steps=40), seed)


class TestPendulum(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("Pendulum-v1", num_envs, max_episode_steps=50)

    def raw(self, seed):
        return RawEnv(gymnasium.make("Pendulum-v1", max_episode_steps=50), seed)


class TestLunarLander(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("LunarLander-v3", num_envs)

    def raw(self, seed):
        return RawEnv(gymnasium.make("LunarLander-v3"), seed)


class TestTaxi(VectorEnvConformance):
    """It has a mask in its info."""

    def make(self, num_envs):
        return envs.make("Taxi-v4", num_envs, max_episode_steps=30)

    def raw(self, seed):
        return RawEnv(gymnasium.make("Taxi-v4", max_episode_steps=30), seed)


class TestAtariVector(VectorEnvConformance):
    num_envs, num_steps = 2, 16  # a reset loads the cartridge again, which takes its time

    def make(self, num_envs):
        return envs.make("ALE/Pong-v5", num_envs, num_threads=2, max_num_frames_per_episode=40, noop_max=4)

    def raw(self, seed):
        env = AtariVectorEnv(
            "pong", 1, autoreset_mode=AutoresetMode.NEXT_STEP, max_num_frames_per_episode=40, noop_max=4
        )
        return RawVectorEnv(env, np.asarray(spread(derived(seed, 0), 1)))


class TestEnvPoolCartPole(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("envpool:CartPole-v1", num_envs, num_threads=2)

    def raw(self, seed):
        return raw_pool("CartPole-v1", seed)


class TestEnvPoolPong(VectorEnvConformance):
    num_envs, num_steps = 1, 8

    def make(self, num_envs):
        return envs.make("envpool:Pong-v5", num_envs, max_episode_steps=6, noop_max=2)

    def raw(self, seed):
        return raw_pool("Pong-v5", seed, max_episode_steps=6, noop_max=2)


class TestConnectFour(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("pettingzoo:connect_four_v3", num_envs)

    def raw(self, seed):
        return RawAgents(connect_four_v3.env(), seed)


class TestSimpleSpread(VectorEnvConformance):
    num_envs, num_steps = 2, 40

    def make(self, num_envs):
        return envs.make("mpe2:simple_spread_v3", num_envs, max_cycles=15)

    def raw(self, seed):
        return RawAgents(simple_spread_v3.parallel_env(max_cycles=15), seed)


class TestSpeakerListener(VectorEnvConformance):
    """Its agents differ."""

    num_envs, num_steps = 2, 40

    def make(self, num_envs):
        return envs.make("mpe2:simple_speaker_listener_v4", num_envs, max_cycles=15)

    def raw(self, seed):
        return RawAgents(simple_speaker_listener_v4.parallel_env(max_cycles=15), seed)


@pytest.mark.parametrize("function", ["counting", "many_spaces", "leaving", "rounds", "own_group"])
class TestOwn(VectorEnvConformance):
    """What a user's function makes."""

    @pytest.fixture(autouse=True)
    def _choose(self, function):
        self.function = function

    def make(self, num_envs):
        return envs.make(f"{GAMES}:{self.function}", num_envs)

    def raw(self, seed):
        if self.function == "own_group":
            return RawVectorEnv(gymnasium.make_vec("CartPole-v1", 1, "vector_entry_point"), derived(seed, 0))
        env = getattr(games, self.function)()
        return RawAgents(env, seed) if hasattr(env, "possible_agents") else RawEnv(env, seed)


class TestTheExampleOnThePage(VectorEnvConformance):
    @pytest.fixture(autouse=True)
    def _write(self, tmp_path):
        [code] = re.findall(r"```python\n(# my_game\.py.*?)```", PAGE.read_text(), re.DOTALL)
        self.path = tmp_path / "my_game.py"
        self.path.write_text(code)

    def make(self, num_envs):
        return envs.make(f"{self.path}:make", num_envs, size=5)

    def raw(self, seed):
        return RawEnv(load_attribute(f"{self.path}:make", what="env")(size=5), seed)
