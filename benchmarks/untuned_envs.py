"""Small environments that no setting was tuned for: each has one property that defaults tend to get wrong.

ludus train ppo benchmarks/untuned_envs.py:byte_planes --steps 100000

`benchmarks/learn.py --part untuned` trains on all of them. Each says what random and perfect play return.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))
Step = tuple[Any, float, bool, bool, dict[str, Any]]


def scaled_cartpole(scale: float = 1.0) -> gymnasium.Env:
    """CartPole whose rewards are multiplied. Random: 22 × scale; perfect: 500 × scale."""
    return gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: scale * float(reward))


class BytePlanes(gymnasium.Env):
    """Walk to the goal on a 5 × 5 board; a plane of bytes, 0 or 1, for the walker and one for the goal.

    -0.05 for a step, 1 at the goal. Random: -0.4; perfect: 0.85.
    """

    observation_space = spaces.Box(0, 1, (5, 5, 2), np.uint8)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        own, goal = self.np_random.choice(25, 2, replace=False)
        self._at, self._goal = [own // 5, own % 5], [goal // 5, goal % 5]
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Step:
        self._steps += 1
        self._at = [min(4, max(0, at + move)) for at, move in zip(self._at, _MOVES[int(action)], strict=True)]
        is_there = self._at == self._goal
        return self._seen(), is_there - 0.05, is_there, self._steps >= 20, {}

    def _seen(self) -> np.ndarray:
        planes = np.zeros((5, 5, 2), np.uint8)
        planes[*self._at, 0] = planes[*self._goal, 1] = 1
        return planes


class Codes(BytePlanes):
    """The same board as a grid of codes, 0 to 10, in a space of bytes from 0 to 255: so MiniGrid describes its own."""

    observation_space = spaces.Box(0, 255, (5, 5, 3), np.uint8)

    def _seen(self) -> np.ndarray:
        grid = np.full((5, 5, 3), (1, 0, 0), np.uint8)
        grid[*self._goal] = (8, 1, 0)
        grid[*self._at] = (10, 0, 3)
        return grid


class Dial(gymnasium.Env):
    """Set a dial that goes from 0 to 1000 to the number that is seen (as a fraction); ten times in an episode.

    Each costs its error as a fraction. Random: -3.3; always 500: -2.5; perfect: 0.
    """

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(0.0, 1000.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._next(), {}

    def step(self, action: Any) -> Step:
        self._steps += 1
        error = abs(float(np.asarray(action).reshape(-1)[0]) / 1000.0 - self._wanted)
        return self._next(), -error, self._steps >= 10, False, {}

    def _next(self) -> np.ndarray:
        self._wanted = float(self.np_random.random())
        return np.array([self._wanted], np.float32)


class Corners(gymnasium.Env):
    """Walk to one of four corners; a `Dict` of the place, in numbers, and the corner, a choice.

    -0.05 for a step, 1 at the corner. Random: -1.3; perfect: 0.7.
    """

    observation_space = spaces.Dict({"place": spaces.Box(-1.0, 1.0, (2,), np.float32), "corner": spaces.Discrete(4)})
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = self.np_random.uniform(-0.5, 0.5, 2)
        self._corner = int(self.np_random.integers(4))
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Step:
        self._steps += 1
        self._place = np.clip(self._place + 0.25 * np.array(_MOVES[int(action)]), -1.0, 1.0)
        corner = np.array([2 * (self._corner // 2) - 1, 2 * (self._corner % 2) - 1])
        is_there = bool(np.all(np.abs(self._place - corner) <= 0.25))
        return self._seen(), is_there - 0.05, is_there, self._steps >= 30, {}

    def _seen(self) -> dict[str, Any]:
        return {"place": self._place.astype(np.float32), "corner": self._corner}


class Locks(gymnasium.Env):
    """Three locks of 3, 4 and 5 digits, opened at once (`MultiDiscrete`) by the digits that are seen; ten times.

    A third for each that opens. Random: 2.6; perfect: 10.
    """

    sizes = (3, 4, 5)
    observation_space = spaces.Box(0.0, 1.0, (12,), np.float32)
    action_space = spaces.MultiDiscrete(sizes)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._next(), {}

    def step(self, action: Any) -> Step:
        self._steps += 1
        reward = float(np.mean(np.asarray(action) == self._wanted))
        return self._next(), reward, self._steps >= 10, False, {}

    def _next(self) -> np.ndarray:
        self._wanted = self.np_random.integers(0, self.sizes)
        seen = np.zeros(12, np.float32)
        seen[self._wanted + np.array([0, 3, 7])] = 1.0
        return seen


class Cards(gymnasium.Env):
    """Play five cards, the lowest first; a card that was played is not allowed again (a mask), and raises.

    1 for each that was the lowest left. Random: 2.3; perfect: 5.
    """

    observation_space = spaces.Box(0.0, 1.0, (10,), np.float32)
    action_space = spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._cards = self.np_random.random(5)
        self._is_held = np.ones(5, np.bool_)
        return self._seen()

    def step(self, action: Any) -> Step:
        if not self._is_held[action]:
            raise ValueError(f"card {action} was played before")
        is_lowest = self._cards[action] == self._cards[self._is_held].min()
        self._is_held[action] = False
        seen, info = self._seen()
        return seen, float(is_lowest), not self._is_held.any(), False, info

    def _seen(self) -> tuple[np.ndarray, dict[str, Any]]:
        return np.concatenate([self._cards, self._is_held]).astype(np.float32), {
            "action_mask": self._is_held.astype(np.int8)
        }


class TMaze(gymnasium.Env):
    """A corridor with a sign at its start that says which way to turn at its end, where it is out of sight.

    1 for the right turn, -1 for the wrong one, -0.1 for turning before. Without memory: 0 at most; perfect: 1.
    """

    length = 6
    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(3)  # forward, left, right

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._sign = int(self.np_random.integers(2))
        self._at = self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Step:
        self._steps += 1
        is_late = self._steps >= 40
        if self._at == self.length and action != 0:
            return self._seen(), 1.0 if action == 1 + self._sign else -1.0, True, False, {}
        if action != 0 or self._at == self.length:
            return self._seen(), -0.1, False, is_late, {}
        self._at += 1
        return self._seen(), 0.0, False, is_late, {}

    def _seen(self) -> np.ndarray:
        sign = (2.0 * self._sign - 1.0) if self._at == 0 else 0.0
        return np.array([sign, self._at == self.length, self._at / self.length], np.float32)


class OneStep(gymnasium.Env):
    """Name the largest of four numbers: an episode is a single step. Random: 0.25; perfect: 1."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._numbers = self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)
        return self._numbers, {}

    def step(self, action: Any) -> Step:
        return self._numbers, float(action == self._numbers.argmax()), True, False, {}


class Endless(gymnasium.Env):
    """Hold a temperature near 0 against a drift that turns now and then; no episode ever ends.

    1 - |temperature| for a step. In 1,000 steps random: 280; perfect: about 940.
    """

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(3)  # cool, wait, heat

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._temperature = float(self.np_random.uniform(-1.0, 1.0))
        self._drift = 0.08
        return self._seen(), {}

    def step(self, action: Any) -> Step:
        if self.np_random.random() < 0.05:
            self._drift = -self._drift
        change = self._drift + 0.1 * (int(action) - 1) + 0.02 * float(self.np_random.standard_normal())
        self._temperature = min(1.0, max(-1.0, self._temperature + change))
        return self._seen(), 1.0 - abs(self._temperature), False, False, {}

    def _seen(self) -> np.ndarray:
        return np.array([self._temperature, 10.0 * self._drift], np.float32)


class SmallBreakout(gymnasium.Env):
    """Breakout on 10 × 10 with four planes of bits: paddle, ball, where the ball was, bricks.

    1 for a brick; a lost ball ends the episode, and a wall that is gone is built again. Random: 0.5; a paddle that is
    always below the ball: 49 in the 1,000 steps of an episode.
    """

    observation_space = spaces.Box(0, 1, (10, 10, 4), np.uint8)
    action_space = spaces.Discrete(3)  # left, stay, right

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        is_left = bool(self.np_random.integers(2))
        self._ball, self._move = [3, 0 if is_left else 9], [1, 1 if is_left else -1]
        self._trail = list(self._ball)
        self._paddle = 4
        self._bricks = np.zeros((10, 10), np.bool_)
        self._bricks[1:4] = True
        self._bricks[3, self._ball[1]] = False
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Step:
        self._steps += 1
        self._paddle = min(9, max(0, self._paddle + int(action) - 1))
        self._trail = list(self._ball)
        row, column = self._ball[0] + self._move[0], self._ball[1] + self._move[1]
        if not 0 <= column <= 9:
            self._move[1] *= -1
            column = self._ball[1] + self._move[1]
        reward, is_lost = 0.0, False
        if row < 0:
            self._move[0] = 1
            row = 1
        elif self._bricks[row, column]:
            self._bricks[row, column] = False
            reward = 1.0
            row, self._move[0] = self._ball[0], -self._move[0]
        elif row == 9:
            is_lost = not self._bounce(column)
            row = 8 if not is_lost else 9
        self._ball = [row, column]
        if not self._bricks.any() and row > 3:
            self._bricks[1:4] = True
        return self._seen(), reward, is_lost, self._steps >= 1_000, {}

    def _bounce(self, column: int) -> bool:
        """Off the paddle: straight back from where it came if it was met at the side. False if it was missed."""
        if column != self._paddle and self._ball[1] != self._paddle:
            return False
        if column != self._paddle:
            self._move[1] *= -1
        self._move[0] = -1
        return True

    def _seen(self) -> np.ndarray:
        planes = np.zeros((10, 10, 4), np.uint8)
        planes[9, self._paddle, 0] = 1
        planes[*self._ball, 1] = 1
        planes[*self._trail, 2] = 1
        planes[:, :, 3] = self._bricks
        return planes


def byte_planes() -> gymnasium.Env:
    return BytePlanes()


def codes() -> gymnasium.Env:
    return Codes()


def pendulum() -> gymnasium.Env:
    """Gymnasium's own, under a name that no preset can fit. Random: -1200; good: -150."""
    return gymnasium.make("Pendulum-v1")


def dial() -> gymnasium.Env:
    return Dial()


def corners() -> gymnasium.Env:
    return Corners()


def locks() -> gymnasium.Env:
    return Locks()


def cards() -> gymnasium.Env:
    return Cards()


def t_maze() -> gymnasium.Env:
    return TMaze()


def one_step() -> gymnasium.Env:
    return OneStep()


def endless() -> gymnasium.Env:
    return Endless()


def small_breakout() -> gymnasium.Env:
    return SmallBreakout()
