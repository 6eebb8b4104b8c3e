"""DQN in CleanRL's manner, one file from top to bottom, on CartPole-v1.

    single_file_dqn.py rate --steps 20000 --threads 1     steps per second at the work that all contestants share
    single_file_dqn.py to-goal --settings zoo             seconds from process start to a greedy return of 475

Faster than CleanRL's own file where that is cheap: fused Adam, one array of transitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from progress import LEARNING_STARTS, Question
from torch import Tensor, nn


@dataclass(frozen=True)
class Settings:
    learning_rate: float
    batch_size: int
    capacity: int
    learning_starts: int
    train_every: int  # steps
    num_updates: int  # each time
    target_every: int  # steps
    exploration_steps: int
    final_eps: float
    hidden: tuple[int, int] = (256, 256)
    gamma: float = 0.99


SETTINGS = {
    "shared": Settings(2.5e-4, 128, 100_000, LEARNING_STARTS, 4, 1, 500, 10_000, 0.05),
    "cleanrl": Settings(2.5e-4, 128, 10_000, 10_000, 10, 1, 500, 250_000, 0.05, hidden=(120, 84)),
    "zoo": Settings(2.3e-3, 64, 100_000, 1000, 256, 128, 10, 8_000, 0.04),
}


class Replay:
    """Rows of obs (4), next obs (4), reward, terminated; actions beside them."""

    def __init__(self, capacity: int, *, seed: int) -> None:
        self._rows = np.zeros((capacity, 10), np.float32)
        self._actions = np.zeros((capacity, 1), np.int64)
        self._capacity = capacity
        self._num_rows = 0
        self._rng = np.random.default_rng(seed)

    def add(self, obs: np.ndarray, action: int, reward: float, next_obs: np.ndarray, *, terminated: bool) -> None:
        place = self._num_rows % self._capacity
        row = self._rows[place]
        row[0:4], row[4:8], row[8], row[9] = obs, next_obs, reward, terminated
        self._actions[place] = action
        self._num_rows += 1

    def sample(self, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        drawn = self._rng.integers(0, min(self._num_rows, self._capacity), n)
        rows = torch.from_numpy(self._rows[drawn])
        return rows[:, 0:4], torch.from_numpy(self._actions[drawn]), rows[:, 8], rows[:, 4:8], rows[:, 9]


class Dqn:
    def __init__(self, settings: Settings, *, seed: int) -> None:
        torch.manual_seed(seed)
        self.replay = Replay(settings.capacity, seed=seed)
        self._settings = settings
        self._network = mlp(settings.hidden)
        self._target = mlp(settings.hidden)
        self.refresh_target()
        self._adam = torch.optim.Adam(self._network.parameters(), lr=settings.learning_rate, fused=True)

    @torch.no_grad()
    def act_greedily(self, obs: np.ndarray) -> np.ndarray:
        return self._network(torch.from_numpy(obs)).argmax(-1).numpy()

    def update(self) -> None:
        s = self._settings
        obs, action, reward, next_obs, terminated = self.replay.sample(s.batch_size)
        with torch.no_grad():
            target = reward + s.gamma * (1 - terminated) * self._target(next_obs).amax(-1)
        loss = F.mse_loss(self._network(obs).gather(1, action)[:, 0], target)
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()

    def refresh_target(self) -> None:
        self._target.load_state_dict(self._network.state_dict())


def mlp(hidden: tuple[int, int]) -> nn.Sequential:
    first, second = hidden
    layers = [nn.Linear(4, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 2)]
    return nn.Sequential(*layers)


def main() -> None:
    asked = Question.from_command_line("dqn")
    torch.set_num_threads(asked.threads)
    s = SETTINGS[asked.settings]
    dqn = Dqn(s, seed=asked.seed)
    asked.act = dqn.act_greedily
    rng = np.random.default_rng(asked.seed)
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=asked.seed)
    steps = 0
    while not asked.is_answered(steps):
        eps = max(s.final_eps, 1 + (s.final_eps - 1) * steps / s.exploration_steps)
        action = int(rng.integers(2)) if rng.random() < eps else int(dqn.act_greedily(obs))
        next_obs, reward, terminated, truncated, _ = env.step(action)
        dqn.replay.add(obs, action, float(reward), next_obs, terminated=terminated)
        obs = env.reset()[0] if terminated or truncated else next_obs
        steps += 1
        if steps > s.learning_starts:
            if steps % s.target_every == 0:
                dqn.refresh_target()
            if steps % s.train_every == 0:
                for _ in range(s.num_updates):
                    dqn.update()
    asked.send()


if __name__ == "__main__":
    main()
