"""Every adapter keeps the contract of `core.Worlds`."""

import re
from pathlib import Path

import pytest

from ludus import envs
from ludus.testing.worlds import WorldsConformance

GAMES = Path(__file__).parent / "games.py"
PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


class TestCartPoleVector(WorldsConformance):
    def make(self, num_worlds):
        return envs.make("CartPole-v1", num_worlds)


class TestCartPoleLoop(WorldsConformance):
    def make(self, num_worlds):
        return envs.make("CartPole-v1", num_worlds, vectorization="loop")


class TestAcrobot(WorldsConformance):
    def make(self, num_worlds):
        return envs.make("Acrobot-v1", num_worlds, max_episode_steps=40)


class TestPendulum(WorldsConformance):
    def make(self, num_worlds):
        return envs.make("Pendulum-v1", num_worlds, max_episode_steps=50)


class TestLunarLander(WorldsConformance):
    def make(self, num_worlds):
        return envs.make("LunarLander-v3", num_worlds)


class TestTaxi(WorldsConformance):
    """It has a mask in its info."""

    def make(self, num_worlds):
        return envs.make("Taxi-v4", num_worlds, max_episode_steps=30)


class TestAtariVector(WorldsConformance):
    num_worlds, num_steps = 2, 16  # a reset loads the cartridge again, which takes its time

    def make(self, num_worlds):
        return envs.make("ALE/Pong-v5", num_worlds, num_threads=2, max_num_frames_per_episode=40, noop_max=4)


class TestEnvPoolCartPole(WorldsConformance):
    def make(self, num_worlds):
        return envs.make("envpool:CartPole-v1", num_worlds, num_threads=2)


class TestEnvPoolPong(WorldsConformance):
    num_worlds, num_steps = 1, 8

    def make(self, num_worlds):
        return envs.make("envpool:Pong-v5", num_worlds, max_episode_steps=6, noop_max=2)


class TestConnectFour(WorldsConformance):
    def make(self, num_worlds):
        return envs.make("pettingzoo:connect_four_v3", num_worlds)


class TestSimpleSpread(WorldsConformance):
    num_worlds, num_steps = 2, 40

    def make(self, num_worlds):
        return envs.make("mpe2:simple_spread_v3", num_worlds, max_cycles=15)


class TestSpeakerListener(WorldsConformance):
    """Its agents differ."""

    num_worlds, num_steps = 2, 40

    def make(self, num_worlds):
        return envs.make("mpe2:simple_speaker_listener_v4", num_worlds, max_cycles=15)


@pytest.mark.parametrize("function", ["counting", "many_spaces", "leaving", "rounds", "own_group"])
class TestOwn(WorldsConformance):
    """What a user's function makes."""

    @pytest.fixture(autouse=True)
    def _choose(self, function):
        self.function = function

    def make(self, num_worlds):
        return envs.make(f"{GAMES}:{self.function}", num_worlds)


class TestTheExampleOnThePage(WorldsConformance):
    @pytest.fixture(autouse=True)
    def _write(self, tmp_path):
        [code] = re.findall(r"```python\n(# my_game\.py.*?)```", PAGE.read_text(), re.DOTALL)
        self.path = tmp_path / "my_game.py"
        self.path.write_text(code)

    def make(self, num_worlds):
        return envs.make(f"{self.path}:make", num_worlds, size=5)
