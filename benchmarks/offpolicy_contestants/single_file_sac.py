"""SAC in CleanRL's manner, one file from top to bottom, on Pendulum-v1.

    single_file_sac.py rate --steps 2000 --threads 1     steps per second at the work that all contestants share
    single_file_sac.py to-goal --settings cleanrl        seconds from process start to a greedy return of -180

Faster than CleanRL's own file where that is cheap: fused Adam, `foreach` for the targets, no distribution objects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from progress import LEARNING_STARTS, Question
from torch import Tensor, nn

MAX_TORQUE = 2.0
TARGET_ENTROPY = -1.0  # one action
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
CAPACITY = 1_000_000


@dataclass(frozen=True)
class Settings:
    policy_learning_rate: float
    critic_learning_rate: float
    learning_starts: int
    batch_size: int = 256
    policy_every: int = 2  # as often as that in one go, as CleanRL does: no less work
    gamma: float = 0.99
    tau: float = 0.005


SETTINGS = {
    "shared": Settings(3e-4, 1e-3, LEARNING_STARTS),
    "cleanrl": Settings(3e-4, 1e-3, 5000),
    "zoo": Settings(1e-3, 1e-3, 100, policy_every=1),
}


class Replay:
    """Rows of obs (3), action (1), reward, next obs (3); an episode of Pendulum is only ever truncated."""

    def __init__(self, *, seed: int) -> None:
        self._rows = np.zeros((CAPACITY, 8), np.float32)
        self._num_rows = 0
        self._rng = np.random.default_rng(seed)

    def add(self, obs: np.ndarray, action: np.ndarray, reward: float, next_obs: np.ndarray) -> None:
        row = self._rows[self._num_rows % CAPACITY]
        row[0:3], row[3:4], row[4], row[5:8] = obs, action, reward, next_obs
        self._num_rows += 1

    def sample(self, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        drawn = self._rng.integers(0, min(self._num_rows, CAPACITY), n)
        rows = torch.from_numpy(self._rows[drawn])
        return rows[:, 0:3], rows[:, 3:4], rows[:, 4:5], rows[:, 5:8]


class Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self._body = nn.Sequential(nn.Linear(3, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self._mean = nn.Linear(256, 1)
        self._log_std = nn.Linear(256, 1)

    def draw(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """An action and its log-probability, with the correction for the squashing."""
        hidden = self._body(obs)
        mean = self._mean(hidden)
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (self._log_std(hidden).tanh() + 1)
        noise = torch.randn_like(mean)
        squashed = (mean + log_std.exp() * noise).tanh()
        log_prob = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        log_prob = log_prob - (MAX_TORQUE * (1 - squashed.square()) + 1e-6).log()
        return squashed * MAX_TORQUE, log_prob

    @torch.no_grad()
    def act(self, obs: np.ndarray) -> np.ndarray:
        return self.draw(torch.from_numpy(obs)[None])[0][0].numpy()

    @torch.no_grad()
    def act_greedily(self, obs: np.ndarray) -> np.ndarray:
        return (self._mean(self._body(torch.from_numpy(obs))).tanh() * MAX_TORQUE).numpy()


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self._layers = nn.Sequential(
            nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
        )  # fmt: skip

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        return self._layers(torch.cat([obs, action], 1))


class Sac:
    def __init__(self, settings: Settings, *, seed: int) -> None:
        torch.manual_seed(seed)
        self.actor = Actor()
        self.replay = Replay(seed=seed)
        self._settings = settings
        self._critics = nn.ModuleList([Critic(), Critic()])
        self._targets = nn.ModuleList([Critic(), Critic()])
        self._targets.load_state_dict(self._critics.state_dict())
        self._targets.requires_grad_(False)
        self._critic_weights = [p.data for p in self._critics.parameters()]
        self._target_weights = list(self._targets.parameters())
        self._log_alpha = torch.zeros(1, requires_grad=True)
        self._policy_adam = torch.optim.Adam(self.actor.parameters(), lr=settings.policy_learning_rate, fused=True)
        self._critic_adam = torch.optim.Adam(self._critics.parameters(), lr=settings.critic_learning_rate, fused=True)
        self._alpha_adam = torch.optim.Adam([self._log_alpha], lr=settings.critic_learning_rate, fused=True)
        self._num_updates = 0

    def update(self) -> None:
        s = self._settings
        obs, action, reward, next_obs = self.replay.sample(s.batch_size)
        with torch.no_grad():
            next_action, log_prob = self.actor.draw(next_obs)
            next_value = torch.min(self._targets[0](next_obs, next_action), self._targets[1](next_obs, next_action))
            target = reward + s.gamma * (next_value - self._log_alpha.exp() * log_prob)
        loss = sum(F.mse_loss(critic(obs, action), target) for critic in self._critics)
        self._step(self._critic_adam, loss)
        self._num_updates += 1
        if self._num_updates % s.policy_every == 0:
            for _ in range(s.policy_every):
                self._update_policy(obs)
        torch._foreach_lerp_(self._target_weights, self._critic_weights, s.tau)

    def _update_policy(self, obs: Tensor) -> None:
        action, log_prob = self.actor.draw(obs)
        self._critics.requires_grad_(False)
        value = torch.min(self._critics[0](obs, action), self._critics[1](obs, action))
        self._step(self._policy_adam, (self._log_alpha.exp().detach() * log_prob - value).mean())
        self._critics.requires_grad_(True)
        self._step(self._alpha_adam, -(self._log_alpha.exp() * (log_prob.detach() + TARGET_ENTROPY)).mean())

    @staticmethod
    def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    asked = Question.from_command_line("sac")
    torch.set_num_threads(asked.threads)
    settings = SETTINGS[asked.settings]
    sac = Sac(settings, seed=asked.seed)
    asked.act = sac.actor.act_greedily
    env = gymnasium.make("Pendulum-v1")
    env.action_space.seed(asked.seed)
    obs, _ = env.reset(seed=asked.seed)
    steps = 0
    while not asked.is_answered(steps):
        action = env.action_space.sample() if steps < settings.learning_starts else sac.actor.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        sac.replay.add(obs, action, float(reward), next_obs)
        obs = env.reset()[0] if terminated or truncated else next_obs
        steps += 1
        if steps > settings.learning_starts:
            sac.update()
    asked.send()


if __name__ == "__main__":
    main()
