"""Small envs that the tests make by name, as a user would: `module:function` or `path/to/games.py:function`."""

import os
import signal
import sys

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


class Counting(gymnasium.Env):
    """Counts its steps up to `length`; the observation is [steps, a number drawn at reset, the last action]."""

    observation_space = spaces.Box(-1.0, 1e6, (3,), np.float64)

    def __init__(self, length=7, action_space=None, wild=False, raise_at=None, raise_in_reset=False):
        self.action_space = action_space or spaces.Discrete(3)
        self.length, self.wild, self.raise_at, self.raise_in_reset = length, wild, raise_at, raise_in_reset
        self.taken = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.raise_in_reset:
            raise OSError("the screen is gone")
        self.steps = 0
        self.drawn = np.random.default_rng().random() if self.wild else self.np_random.random()
        return self._seen(0.0), {}

    def step(self, action):
        self.taken.append(action)
        self.steps += 1
        if self.raise_at is not None and self.steps >= self.raise_at:
            raise RuntimeError("the game broke")
        over = self.steps == self.length
        return self._seen(np.mean(action)), float(np.mean(action)), over and self.length % 2 == 1, over, {}

    def _seen(self, action):
        return np.array([self.steps, self.drawn, action])


def counting(**kwargs):
    return Counting(**kwargs)


def raises_now_and_then(num_good=25):
    """Each environment lives for so many steps, then raises."""

    class Brittle(Counting):
        def step(self, action):
            if len(self.taken) >= num_good:
                raise RuntimeError("it is worn out")
            return super().step(action)

    return Brittle()


class Invalid(Counting):
    """As `Counting`, but from its step `at` on it gives something invalid, or does."""

    def __init__(self, what, at):
        super().__init__()
        self.what, self.at = what, at
        if what == "a place outside":
            self.observation_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return (self._invalid() if self.at == 0 else self._seen(0.0)), {}

    def step(self, action):
        _, reward, terminated, truncated, _ = super().step(action)
        obs = self._seen(0.0)
        if self.steps < self.at:
            return obs, reward, terminated, truncated, {}
        match self.what:
            case "an exit":
                sys.exit(3)
            case "a signal":
                os.kill(os.getpid(), signal.SIGUSR1)
            case "no reward":
                reward = None
            case "a reward of nan" | "a reward of inf":
                reward = float(self.what.rpartition(" ")[2])
            case _:
                obs = self._invalid()
        return obs, reward, terminated, truncated, {}

    def _seen(self, action):
        return 1 if self.what == "a place outside" else super()._seen(action)

    def _invalid(self):
        invalid = {"one number": 0.5, "a place outside": 7, "nan": np.full(3, np.nan), "inf": np.array([0, -np.inf, 0])}
        return invalid[self.what]


def invalid(what, at=3):
    return Invalid(what, at)


class Old:
    """The interface of Gym before 0.26."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self):
        return np.zeros(3, np.float32)

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, True, {}


def old():
    return Old()


def many_spaces():
    """Observations in a nest of every kind of space."""

    class Nested(Counting):
        observation_space = spaces.Dict(
            {
                "place": spaces.Discrete(5, start=2),
                "switches": spaces.MultiBinary(3),
                "dials": spaces.MultiDiscrete([2, 3]),
                "pair": spaces.Tuple((spaces.Box(0, 255, (2, 2), np.uint8), spaces.Box(-1, 1, (), np.float64))),
            }
        )

        def _seen(self, action):
            return {
                "place": 2 + self.steps % 5,
                "switches": np.ones(3, np.int8),
                "dials": np.array([1, 2]),
                "pair": (np.full((2, 2), self.steps, np.uint8), np.array(0.5)),
            }

    return Nested()


class Leaving(ParallelEnv):
    """Agent `i` of three leaves after `2 + i` steps; they differ in what they see and how many choices they have."""

    metadata = {"name": "leaving"}  # noqa: RUF012

    def __init__(self, kinds="padded", pension=None):
        self.possible_agents = ["a", "b", "c"]
        self.kinds = kinds
        self.pension = pension  # the reward of those who have left

    def observation_space(self, agent):
        return spaces.Box(-10, 10, (2 + self.possible_agents.index(agent),), np.float32)

    def action_space(self, agent):
        if self.kinds == "invalid" and agent == "b":
            return spaces.Box(-1, 1, (2,), np.float32)
        return spaces.Discrete(2 + self.possible_agents.index(agent))

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.steps = 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        assert all(self.action_space(agent).contains(action) for agent, action in actions.items())
        self.steps += 1
        here = self.agents
        seen = self._seen()
        leaves = {agent: self.steps >= 2 + self.possible_agents.index(agent) for agent in here}
        self.agents = [agent for agent in here if not leaves[agent]]
        never = dict.fromkeys(here, False)
        rewards = {} if self.pension is None else dict.fromkeys(self.possible_agents, self.pension)
        rewards |= {agent: float(actions[agent]) for agent in here}
        return seen, rewards, leaves, never, {agent: {} for agent in here}

    def _seen(self):
        drawn = float(self.rng.random())
        return {agent: np.full(self.observation_space(agent).shape, 1 + drawn, np.float32) for agent in self.agents}


def leaving(**kwargs):
    return Leaving(**kwargs)


class Rounds(AECEnv):
    """Two players in turn; at every move the mover gets 1 and the other -1; `b` is out after its 2nd move, `a` after 4.

    The mask is in the info: only the choice `moves % 3` is allowed.
    """

    metadata = {"name": "rounds"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def observation_space(self, agent):
        return spaces.Box(0, 100, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.moves = dict.fromkeys(self.agents, 0)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.agent_selection = "a"
        self._tell()

    def observe(self, agent):
        return np.array([sum(self.moves.values())], np.float32)

    def step(self, action):
        mover = self.agent_selection
        if self.terminations[mover]:
            self._was_dead_step(action)
            self.agent_selection = self.agents[0] if self.agents else mover
            return
        assert action == sum(self.moves.values()) % 3
        self.moves[mover] += 1
        self.rewards = {agent: 1.0 if agent == mover else -1.0 for agent in self.agents}
        self.terminations[mover] = self.moves[mover] >= {"a": 4, "b": 2}[mover]
        other = [agent for agent in self.agents if agent != mover]
        self.agent_selection = mover if self.terminations[mover] or not other else other[0]
        self._tell()

    def _tell(self):
        mask = np.arange(3) == sum(self.moves.values()) % 3
        self.infos = {agent: {"action_mask": mask.astype(np.int8)} for agent in self.agents}


def rounds():
    return Rounds()


def own_group(num_envs):
    """A function that takes `num_envs` gives the whole group."""
    from ludus import envs

    return envs.make("CartPole-v1", num_envs)


def always_two():
    return own_group(2)


def nonsense():
    return "not an env"


not_a_function = 3
