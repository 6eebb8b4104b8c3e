"""Envs whose every number says where it belongs, and games that break; made by name in worker processes too."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ludus.core import EnvSpec, TimeStep, VectorEnvStats
from ludus.data.actions import Discrete
from ludus.data.spec import ArraySpec


class MarkedVectorEnv:
    """Two agents in each. An observation is [mark, row, step]; a reward is what was done, in the same row.

    Episodes have `length` steps. What is written goes into one set of arrays, as adapters do.
    """

    spec = EnvSpec(
        name="marked",
        obs=ArraySpec((3,), np.float32),
        action=Discrete(4),
        agents=("left", "right"),
        global_state=ArraySpec((2,), np.float32),
        has_mask=True,
    )

    def __init__(self, num_envs: int, *, mark: float, length: int = 5) -> None:
        self.num_envs = num_envs
        self.num_rows = 2 * num_envs
        self._mark = mark
        self._length = length
        rows = self.num_rows
        self._now = TimeStep(
            obs=np.zeros((rows, 3), np.float32),
            reward=np.zeros(rows, np.float32),
            terminated=np.zeros(rows, np.bool_),
            truncated=np.zeros(rows, np.bool_),
            first=np.zeros(rows, np.bool_),
            active=np.ones(rows, np.bool_),
            failed=np.zeros(rows, np.bool_),
            mask=np.zeros((rows, 4), np.bool_),
            global_state=np.zeros((num_envs, 2), np.float32),
        )
        self._clock = self._age = 0
        self._sent: np.ndarray | None = None

    def reset(self, seed: int) -> TimeStep:
        self._clock = self._age = 0
        self._write(reward=np.zeros(self.num_rows), is_over=False, is_first=True)
        return self._now

    def send(self, action: np.ndarray) -> None:
        assert self._sent is None
        self._sent = action.copy()

    def recv(self) -> TimeStep:
        assert self._sent is not None
        action, self._sent = self._sent, None
        self._clock += 1
        was_over = self._age == self._length
        self._age = 0 if was_over else self._age + 1
        reward = np.zeros(self.num_rows) if was_over else action
        self._write(reward=reward, is_over=self._age == self._length, is_first=was_over)
        return self._now

    def step(self, action: np.ndarray) -> TimeStep:
        self.send(action)
        return self.recv()

    def _write(self, *, reward: np.ndarray, is_over: bool, is_first: bool) -> None:
        now = self._now
        now.obs[:, 0], now.obs[:, 1], now.obs[:, 2] = self._mark, np.arange(self.num_rows), self._clock
        now.global_state[:, 0], now.global_state[:, 1] = self._mark, np.arange(self.num_envs)
        now.reward[:] = reward
        now.terminated[:] = is_over
        now.first[:] = is_first
        now.active[:] = not is_over
        now.mask[:] = False
        now.mask[np.arange(self.num_rows), (np.arange(self.num_rows) + self._clock) % 4] = True  # one choice each

    def save(self) -> None:
        return None

    def restore(self, saved: Any) -> TimeStep:
        raise NotImplementedError

    def statistics(self) -> VectorEnvStats:
        return VectorEnvStats()

    def close(self) -> None: ...


class Brittle(gymnasium.Env[np.ndarray, int]):
    """Raises at step `raise_at` of its every `one_in`-th episode; is else ten steps of reward 1."""

    observation_space = spaces.Box(-1.0, 100.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, raise_at: int = 4, one_in: int = 3) -> None:
        self._raise_at = raise_at
        self._one_in = one_in
        self._steps = 0
        self._breaks = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        self._breaks = int(self.np_random.integers(self._one_in)) == 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._breaks and self._steps == self._raise_at:
            raise RuntimeError("the game broke")
        return self._seen(), 1.0, self._steps == 10, False, {}

    def _seen(self) -> np.ndarray:
        return np.array([self._steps, float(self._breaks)], np.float32)


def brittle(**settings: int) -> Brittle:
    return Brittle(**settings)
