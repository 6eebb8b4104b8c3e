"""PPO in CleanRL's manner, one file from top to bottom, on Gymnasium's vectorised CartPole-v1.

    single_file_ppo.py rate --seconds 8          steps per second at the work that all contestants share
    single_file_ppo.py to-475 --settings zoo     seconds from process start to a greedy return of 475

Faster than CleanRL's own file where that is cheap: fused Adam, and no distribution objects.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from greedy import EVERY_STEPS, GOAL, greedy_return
from report import Pace, Report
from torch import Tensor, nn


@dataclass(frozen=True)
class Settings:
    num_envs: int
    num_steps: int
    num_epochs: int
    minibatch_size: int
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    anneal_learning_rate_over: int | None = None
    anneal_clip_over: int | None = None


SETTINGS = {
    "shared": Settings(64, 32, 4, 512),
    "cleanrl": Settings(4, 128, 4, 128, anneal_learning_rate_over=500_000),
    "zoo": Settings(
        8,
        32,
        20,
        256,
        learning_rate=1e-3,
        gamma=0.98,
        gae_lambda=0.8,
        entropy_weight=0.0,
        anneal_learning_rate_over=100_000,
        anneal_clip_over=100_000,
    ),
}


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.policy = mlp(2, last_gain=0.01)
        self.value = mlp(1, last_gain=1.0)

    @torch.inference_mode()
    def act_greedily(self, obs: np.ndarray) -> np.ndarray:
        return self.policy(torch.from_numpy(obs)).argmax(-1).numpy()


def mlp(num_outputs: int, *, last_gain: float) -> nn.Sequential:
    layers = [linear(4, 64), nn.Tanh(), linear(64, 64), nn.Tanh(), linear(64, num_outputs, gain=last_gain)]
    return nn.Sequential(*layers)


def linear(num_inputs: int, num_outputs: int, *, gain: float = 2**0.5) -> nn.Linear:
    layer = nn.Linear(num_inputs, num_outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Rollout:
    """Room for num_steps × num_envs transitions. `ended[t]`: the step that led to obs[t] ended an episode."""

    def __init__(self, num_steps: int, num_envs: int) -> None:
        shape = num_steps, num_envs
        self.obs = torch.zeros(*shape, 4)
        self.actions = torch.zeros(shape, dtype=torch.long)
        self.log_probs, self.rewards, self.values, self.ended = (torch.zeros(shape) for _ in range(4))


class Player:
    """Fills rollouts, going on where the last one stopped."""

    def __init__(self, agent: Agent, settings: Settings, *, seed: int) -> None:
        self._agent = agent
        self._settings = settings
        self._env = gym.make_vec("CartPole-v1", settings.num_envs, vectorization_mode="vector_entry_point")
        obs, _ = self._env.reset(seed=seed)
        self._obs = torch.as_tensor(obs)
        self._ended = torch.zeros(settings.num_envs)

    @torch.inference_mode()
    def play(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Fills the rollout; returns advantages and value targets."""
        for t in range(self._settings.num_steps):
            log_probs = self._agent.policy(self._obs).log_softmax(-1)
            actions = torch.multinomial(log_probs.exp(), 1)
            rollout.obs[t], rollout.ended[t], rollout.actions[t] = self._obs, self._ended, actions[:, 0]
            rollout.log_probs[t] = log_probs.gather(1, actions)[:, 0]
            rollout.values[t] = self._agent.value(self._obs)[:, 0]
            obs, rewards, terminated, truncated, _ = self._env.step(actions[:, 0].numpy())
            rollout.rewards[t] = torch.as_tensor(rewards)
            self._obs = torch.as_tensor(obs)
            self._ended = torch.as_tensor(terminated | truncated, dtype=torch.float32)
        return self._advantages(rollout)

    def _advantages(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        gamma, gae_lambda = self._settings.gamma, self._settings.gae_lambda
        advantages = torch.zeros_like(rollout.values)
        next_value, next_ended, running = self._agent.value(self._obs)[:, 0], self._ended, 0.0
        for t in reversed(range(self._settings.num_steps)):
            delta = rollout.rewards[t] + gamma * next_value * (1 - next_ended) - rollout.values[t]
            running = delta + gamma * gae_lambda * (1 - next_ended) * running
            advantages[t] = running
            next_value, next_ended = rollout.values[t], rollout.ended[t]
        return advantages, advantages + rollout.values


class Ppo:
    def __init__(self, settings: Settings, *, seed: int) -> None:
        torch.manual_seed(seed)
        self.agent = Agent()
        self.steps = 0
        self._settings = settings
        self._parameters = list(self.agent.parameters())
        self._optimizer = torch.optim.Adam(self._parameters, lr=settings.learning_rate, eps=1e-5, fused=True)
        self._player = Player(self.agent, settings, seed=seed)
        self._rollout = Rollout(settings.num_steps, settings.num_envs)

    def update(self) -> None:
        """One rollout, then all epochs over it."""
        s = self._settings
        self._optimizer.param_groups[0]["lr"] = s.learning_rate * self._left_of(s.anneal_learning_rate_over)
        clip = s.clip * self._left_of(s.anneal_clip_over)
        advantages, targets = self._player.play(self._rollout)
        r = self._rollout
        tensors = r.obs.view(-1, 4), r.actions.view(-1), r.log_probs.view(-1), advantages.view(-1), targets.view(-1)
        obs, actions, log_probs, advantages, targets = (x.clone() for x in tensors)  # ends inference mode
        # A step taken from an ended episode only resets it (Gymnasium's NEXT_STEP): nothing to learn from.
        useful = (r.ended.view(-1) == 0).nonzero()[:, 0].clone()
        for _ in range(s.num_epochs):
            for i in useful[torch.randperm(len(useful))].split(s.minibatch_size):
                self._step(obs[i], actions[i], log_probs[i], advantages[i], targets[i], clip)
        self.steps += s.num_envs * s.num_steps

    def _step(
        self, obs: Tensor, actions: Tensor, old_log_probs: Tensor, advantages: Tensor, targets: Tensor, clip: float
    ) -> None:
        s = self._settings
        log_probs = self.agent.policy(obs).log_softmax(-1)
        ratio = (log_probs.gather(1, actions[:, None])[:, 0] - old_log_probs).exp()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = -torch.min(advantages * ratio, advantages * ratio.clamp(1 - clip, 1 + clip)).mean()
        value_loss = 0.5 * (self.agent.value(obs)[:, 0] - targets).square().mean()
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        loss = policy_loss + s.value_weight * value_loss - s.entropy_weight * entropy
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, 0.5)
        self._optimizer.step()

    def _left_of(self, total_steps: int | None) -> float:
        return 1.0 if total_steps is None else max(0.0, 1 - self.steps / total_steps)


def measure_rate(seconds: float, *, seed: int, report: Report) -> None:
    ppo, pace = Ppo(SETTINGS["shared"], seed=seed), Pace()
    while pace.measured_s() < seconds:
        ppo.update()
        pace.mark(ppo.steps)
    report.send(steps_per_second=pace.rate(), steps=ppo.steps)


def train_to_goal(settings: str, *, seed: int, report: Report) -> None:
    ppo, evaluated_at = Ppo(SETTINGS[settings], seed=seed), 0
    while True:
        ppo.update()
        if ppo.steps - evaluated_at >= EVERY_STEPS:
            evaluated_at = ppo.steps
            if greedy_return(ppo.agent.act_greedily, seed=ppo.steps) >= GOAL:
                break
    report.send(seconds=report.seconds(), steps=ppo.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=["rate", "to-475"])
    parser.add_argument("--settings", choices=SETTINGS, default="cleanrl", help="for to-475")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    report = Report.take_stdout()
    torch.set_num_threads(args.threads)
    if args.task == "rate":
        measure_rate(args.seconds, seed=args.seed, report=report)
    else:
        train_to_goal(args.settings, seed=args.seed, report=report)


if __name__ == "__main__":
    main()
