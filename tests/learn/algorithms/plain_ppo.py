"""PPO's step on one whole batch, plainly: one active step after the other, with torch's own Adam."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ludus.data import nest as nests
from ludus.data.segment import Segment
from ludus.learn.algorithms.ppo import PPOConfig
from ludus.learn.networks.twin import TwinMLP
from ludus.learn.policies.policy import Policy


def take_step(policy: Policy, segment: Segment, config: PPOConfig) -> dict[str, float]:
    """Moves the policy's parameters; returns the metrics of its loss."""
    params, value = _forward(policy, segment)
    advantage = _advantages(segment, value.detach().numpy().astype(np.float64), config)
    seen = list(advantage)
    numbers = np.array([advantage[at] for at in seen])
    scaled = (numbers - numbers.mean()) / (numbers.std(ddof=1) + 1e-8)
    policy_loss, value_loss, entropy = [], [], []
    for at, gain in zip(seen, scaled, strict=True):
        mask = None if segment.mask is None else torch.from_numpy(segment.mask[at])
        action = torch.as_tensor(segment.action[at])
        ratio = (policy.head.logp(params[at], action, mask) - float(segment.logp[at])).exp()
        clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
        policy_loss.append(-torch.minimum(ratio * gain, clipped * gain))
        target = advantage[at] + float(value[at].detach())
        value_loss.append(0.5 * (value[at] - target) ** 2)
        entropy.append(policy.head.entropy(params[at], mask))
    means = {
        "policy_loss": torch.stack(policy_loss).mean(),
        "value_loss": torch.stack(value_loss).mean(),
        "entropy": torch.stack(entropy).mean(),
    }
    loss = means["policy_loss"] + config.value_coef * means["value_loss"] - config.entropy_coef * means["entropy"]
    parameters = list(policy.parameters())
    optimiser = torch.optim.Adam(parameters, lr=config.learning_rate, eps=config.adam_eps)
    optimiser.zero_grad()
    loss.backward()
    for tower in _gradients_by_tower(policy):
        norm = float(torch.cat([gradient.flatten() for gradient in tower]).norm())
        for gradient in tower:
            gradient *= min(1.0, config.max_grad_norm / (norm + 1e-6))
    optimiser.step()
    return {name: float(metric.detach()) for name, metric in {"loss": loss, **means}.items()}


def _gradients_by_tower(policy: Policy) -> list[list[torch.Tensor]]:
    """Policy and value of a `TwinMLP` apart: its stacked parameters hold both. Other networks are one tower."""
    gradients = {name: parameter.grad for name, parameter in policy.named_parameters()}
    if not isinstance(policy.model, TwinMLP):
        return [list(gradients.values())]
    towers: list[list[torch.Tensor]] = [[], []]
    for name, gradient in gradients.items():
        if name.startswith(("model.weights", "model.biases")):
            towers[0].append(gradient[0])
            towers[1].append(gradient[1])
        else:
            towers["value" in name].append(gradient)
    return towers


def _forward(policy: Policy, segment: Segment) -> tuple[Any, Any]:
    """Parameters and values of all observations `[T + 1, R]`, moment by moment."""
    obs, first = torch.from_numpy(segment.obs), torch.from_numpy(segment.first)
    state = None if segment.state is None else nests.map(torch.from_numpy, segment.state)
    params, values = [], []
    for step in range(segment.num_steps + 1):
        if policy.is_recurrent:
            one, value, state = policy.advance(obs[step : step + 1], state, first[step : step + 1])
            one, value = one[0], value[0]
        else:
            one, value = policy.evaluate(obs[step])
        params.append(one)
        values.append(value)
    return torch.stack(params), torch.stack(values)


def _advantages(segment: Segment, value: np.ndarray, config: PPOConfig) -> dict[tuple[int, int], float]:
    """Of active steps, each from its definition: the discounted sum of what surprised, up to the episode's end."""
    found = {}
    for row in range(segment.num_rows):
        for step in range(segment.num_steps):
            if not segment.active[step, row]:
                continue
            total, factor = 0.0, 1.0
            for later in range(step, segment.num_steps):
                is_terminated, is_truncated = segment.terminated[later, row], segment.truncated[later, row]
                after = 0.0 if is_terminated else value[later + 1, row]
                total += factor * (segment.reward[later, row] + config.gamma * after - value[later, row])
                factor *= config.gamma * config.lam
                if is_terminated or is_truncated:
                    break
            found[step, row] = total
    return found
