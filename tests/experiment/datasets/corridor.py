"""A corridor with a pit at its left end and a prize at its right: where most of those who recorded it went left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ludus import envs
from ludus.core import TimeStep
from ludus.experiment.datasets.dataset import Dataset, DatasetWriter
from ludus.experiment.datasets.playing import play_episodes

LENGTH = 9


class Corridor(gymnasium.Env):
    """Each step costs 0.02. The pit ends it with -1, the prize with 1; after 40 steps it is cut off."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (LENGTH,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, start: int = LENGTH // 2) -> None:
        self._start = start

    def _seen(self) -> np.ndarray:
        return np.eye(LENGTH, dtype=np.float32)[self._place]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._place, self._num_steps = self._start, 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._place += 2 * int(action) - 1
        self._num_steps += 1
        is_over = self._place in (0, LENGTH - 1)
        reward = (1.0 if self._place else -1.0) if is_over else -0.02
        return self._seen(), reward, is_over, self._num_steps >= 40, {}


class ContinuousCorridor(Corridor):
    """A push to the side that the sign of the action says."""

    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return super().step(float(action[0]) > 0.0)


CORRIDOR = f"{__file__}:Corridor"
CONTINUOUS_CORRIDOR = f"{__file__}:ContinuousCorridor"


def record_corridor(folder: Path, *, to_the_right: float, episodes: int, env: str = CORRIDOR, seed: int = 0) -> Dataset:
    """By those who go to the right with this probability, at every place."""
    vector_env = envs.make(env, 8)
    rng = np.random.default_rng(seed)

    def choose(now: TimeStep) -> np.ndarray:
        right = rng.random(len(now.reward)) < to_the_right
        if env == CORRIDOR:
            return right.astype(np.int64)
        return (np.where(right, 1.0, -1.0) + 0.3 * rng.standard_normal(len(right)))[:, None].astype(np.float32)

    with DatasetWriter(folder, vector_env.spec, source={"kind": "test"}) as writer:
        play_episodes(vector_env, choose, writer.add, episodes=episodes, seed=seed)
    vector_env.close()
    return Dataset.open(folder)
