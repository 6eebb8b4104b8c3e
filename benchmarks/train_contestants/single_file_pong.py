"""PPO in CleanRL's manner on Pong, with the settings of its Atari file: 8 envs × 128 steps, 4 epochs, 4 minibatches.

    single_file_pong.py --seconds 30      steps per second of training

It does the work and keeps no score. Faster than CleanRL's own file where that is cheap: the environments step in
threads of their own, as in CleanRL's EnvPool file, and Adam is fused.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from report import Pace, Report
from torch import Tensor, nn

NUM_ENVS, NUM_STEPS, NUM_EPOCHS, MINIBATCH_SIZE = 8, 128, 4, 256
GAMMA, GAE_LAMBDA, CLIP, ENTROPY_WEIGHT, VALUE_WEIGHT = 0.99, 0.95, 0.1, 0.01, 0.5


class Agent(nn.Module):
    def __init__(self, num_actions: int) -> None:
        super().__init__()
        self._torso = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
        )  # fmt: skip
        self._policy = nn.Linear(512, num_actions)
        self._value = nn.Linear(512, 1)

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        features = self._torso(frames.float() / 255)
        return self._policy(features).log_softmax(-1), self._value(features)[:, 0]


class Ppo:
    def __init__(self, *, seed: int) -> None:
        torch.manual_seed(seed)
        self.steps = 0
        self._env = AtariVectorEnv("pong", num_envs=NUM_ENVS, num_threads=2, reward_clipping=True)
        self._obs, _ = self._env.reset(seed=seed)
        self._ended = np.zeros(NUM_ENVS, bool)
        self._agent = Agent(int(self._env.single_action_space.n))
        self._parameters = list(self._agent.parameters())
        self._optimizer = torch.optim.Adam(self._parameters, lr=2.5e-4, eps=1e-5, fused=True)

    def update(self) -> None:
        obs, actions, log_probs, advantages, targets = self._play()
        for _ in range(NUM_EPOCHS):
            for i in torch.randperm(NUM_ENVS * NUM_STEPS).split(MINIBATCH_SIZE):
                self._step(obs[i], actions[i], log_probs[i], advantages[i], targets[i])
        self.steps += NUM_ENVS * NUM_STEPS

    @torch.no_grad()
    def _play(self) -> list[Tensor]:
        shape = NUM_STEPS, NUM_ENVS
        obs = torch.zeros(*shape, 4, 84, 84, dtype=torch.uint8)
        actions = torch.zeros(shape, dtype=torch.long)
        log_probs, rewards, values, ended = (torch.zeros(shape) for _ in range(4))
        for t in range(NUM_STEPS):
            obs[t], ended[t] = torch.from_numpy(self._obs), torch.from_numpy(self._ended)
            log_prob, values[t] = self._agent(obs[t])
            actions[t] = torch.multinomial(log_prob.exp(), 1)[:, 0]
            log_probs[t] = log_prob.gather(1, actions[t][:, None])[:, 0]
            self._obs, reward, terminated, truncated, _ = self._env.step(actions[t].numpy())
            rewards[t], self._ended = torch.from_numpy(np.asarray(reward, np.float32)), terminated | truncated
        next_value, next_ended = self._agent(torch.from_numpy(self._obs))[1], torch.from_numpy(self._ended).float()
        advantages, running = torch.zeros(shape), torch.zeros(NUM_ENVS)
        for t in reversed(range(NUM_STEPS)):
            delta = rewards[t] + GAMMA * next_value * (1 - next_ended) - values[t]
            running = delta + GAMMA * GAE_LAMBDA * (1 - next_ended) * running
            advantages[t], next_value, next_ended = running, values[t], ended[t]
        return [x.flatten(0, 1) for x in (obs, actions, log_probs, advantages, advantages + values)]

    def _step(self, obs: Tensor, actions: Tensor, old_log_probs: Tensor, advantages: Tensor, targets: Tensor) -> None:
        log_probs, values = self._agent(obs)
        ratio = (log_probs.gather(1, actions[:, None])[:, 0] - old_log_probs).exp()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = -torch.min(advantages * ratio, advantages * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        loss = policy_loss + VALUE_WEIGHT * 0.5 * (values - targets).square().mean() - ENTROPY_WEIGHT * entropy
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, 0.5)
        self._optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    report = Report.take_stdout()
    torch.set_num_threads(args.threads)
    ppo, pace = Ppo(seed=args.seed), Pace()
    while pace.measured_s() < args.seconds:
        ppo.update()
        pace.mark(ppo.steps)
    report.send("ale-py", steps_per_second=pace.rate(), steps=ppo.steps)


if __name__ == "__main__":
    main()
