"""Games that are not as they should be, as their authors write them every day."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Noisy(gymnasium.Env[np.ndarray, int]):
    """Draws from NumPy's own generator, so no seed brings an episode back."""

    observation_space = spaces.Box(-10.0, 10.0, (3,), np.float32)
    action_space = spaces.Discrete(2)
    _steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self._seen(), 1.0, self._steps == 20, False, {}

    def _seen(self) -> np.ndarray:
        return np.random.randn(3).clip(-9, 9).astype(np.float32)


class Endless(gymnasium.Env[np.ndarray, int]):
    """A reward of 1 for each step; every `one_in`-th episode, by its seed, never ends, the others have ten steps."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, one_in: int = 1) -> None:
        self._one_in = one_in
        self._steps = 0
        self._ends = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        self._ends = int(self.np_random.integers(self._one_in)) != 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return np.zeros(1, np.float32), 1.0, self._ends and self._steps == 10, False, {}


class Absent(ParallelEnv):  # type: ignore[misc]
    """Of three agents one never takes part."""

    metadata = {"name": "absent"}  # noqa: RUF012 - as PettingZoo has it
    possible_agents = ["left", "right", "absent"]  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = ["left", "right"]
        self._steps = 0
        return self._of(np.zeros(2, np.float32)), self._of({})

    def step(self, actions: Any) -> Any:
        self._steps += 1
        is_over = self._steps == 5
        result = (self._of(np.zeros(2, np.float32)), self._of(1.0), self._of(is_over), self._of(False), self._of({}))
        if is_over:
            self.agents = []
        return result

    def _of(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.agents, value)


class Higher(ParallelEnv):  # type: ignore[misc]
    """Each of two agents names a number for five rounds; the higher one gets 1 for the round and the other loses it."""

    metadata = {"name": "higher"}  # noqa: RUF012
    possible_agents = ["left", "right"]  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0.0, 1.0, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(4)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        self._steps = 0
        return self._of(np.zeros(1, np.float32)), self._of({})

    def step(self, actions: Any) -> Any:
        self._steps += 1
        lead = float(np.sign(int(actions["left"]) - int(actions["right"])))
        is_over = self._of(self._steps == 5)
        seen, infos, never = self._of(np.zeros(1, np.float32)), self._of({}), self._of(False)
        if self._steps == 5:
            self.agents = []
        return seen, {"left": lead, "right": -lead}, is_over, never, infos

    def _of(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.agents, value)


class Sharing(Higher):
    """As `Higher`, but both get what the left one names."""

    def step(self, actions: Any) -> Any:
        seen, rewards, *others = super().step(actions)
        return seen, dict.fromkeys(rewards, float(actions["left"])), *others


def higher() -> Higher:
    return Higher()


def sharing() -> Sharing:
    return Sharing()


def noisy() -> Noisy:
    return Noisy()


def endless(one_in: int = 1) -> Endless:
    return Endless(one_in)


def absent() -> Absent:
    return Absent()
