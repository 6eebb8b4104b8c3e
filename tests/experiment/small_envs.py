"""Envs that nobody tuned for, each learnt in seconds: what defaults must hold on."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Catch(gymnasium.Env):
    """A ball falls through a picture of 36 x 36; the paddle below must be where it lands. 1 if it is, else -1."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)
    _CELLS, _PIXELS = 6, 6

    def _picture(self) -> np.ndarray:
        cells = np.zeros((self._CELLS, self._CELLS), np.uint8)
        cells[self._row, self._ball] = 255
        cells[-1, self._paddle] = 255
        return cells.repeat(self._PIXELS, 0).repeat(self._PIXELS, 1)[..., None]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._row, self._ball = 0, int(self.np_random.integers(self._CELLS))
        self._paddle = int(self.np_random.integers(self._CELLS))
        return self._picture(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._paddle = min(max(self._paddle + int(action) - 1, 0), self._CELLS - 1)
        self._row += 1
        is_over = self._row == self._CELLS - 1
        reward = (1.0 if self._paddle == self._ball else -1.0) if is_over else 0.0
        return self._picture(), reward, is_over, False, {}


class Planes(gymnasium.Env):
    """Which of four cells is set? Four planes of bytes that are 0 or 1; one step."""

    observation_space = gymnasium.spaces.Box(0, 1, (2, 2, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._cell = int(self.np_random.integers(4))
        obs = self.np_random.integers(0, 2, (2, 2, 4)).astype(np.uint8)
        obs[..., 3] = 0
        obs[self._cell // 2, self._cell % 2, 3] = 1
        return obs, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros((2, 2, 4), np.uint8), float(int(action) == self._cell), True, False, {}


class Aim(gymnasium.Env):
    """Name the number from 0 to 1000 that is shown, ten times; each miss costs what it is off by, times `size`."""

    observation_space = gymnasium.spaces.Box(0.0, 1000.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(0.0, 1000.0, (1,), np.float32)

    def __init__(self, size: float = 1e-3) -> None:
        self._size = size

    def _shown(self) -> np.ndarray:
        self._number = float(self.np_random.random() * 1000.0)
        return np.float32([self._number])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._num_steps = 0
        return self._shown(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = -abs(float(np.clip(action[0], 0.0, 1000.0)) - self._number) * self._size
        self._num_steps += 1
        return self._shown(), reward, self._num_steps == 10, False, {}
