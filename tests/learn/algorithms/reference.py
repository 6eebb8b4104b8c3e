"""One whole update of each algorithm, written plainly: targets, loss, gradient, clipping, Adam.

Nothing of `ludus.learn` is used but the policy's forward pass; all else is in double precision. Targets follow a
row's own acts one after the other, the loss is a sum over single steps, and Adam is the one of the paper, in NumPy.
What the algorithms do differently is in `LOSSES` and in `Reference._targets`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ludus.data import nest as nests
from ludus.data.actions import Continuous, Discrete, MultiDiscrete
from ludus.data.segment import Segment
from ludus.learn.networks.twin import TwinMLP
from ludus.learn.policies.policy import Policy

At = tuple[int, int]  # step and row


@dataclass(frozen=True)
class Act:
    """What one action led to, up to the row's next action, the end of its episode or the end of the segment."""

    at: At
    reward: float
    next_value: float  # of what is seen then; 0 where the episode terminated
    next_at: At | None  # the row's next action, where the episode goes on to it


class Reference:
    """A policy and Adam's moments. `update` moves the policy as `Learner.update` should."""

    def __init__(self, name: str, policy: Policy, config: Any) -> None:
        self.policy = copy.deepcopy(policy)
        self._name = name
        self._config = config
        self._parameters = list(self.policy.parameters())
        self._mean = [np.zeros(parameter.shape) for parameter in self._parameters]
        self._square = [np.zeros(parameter.shape) for parameter in self._parameters]
        self._num_steps = 0

    def update(self, segment: Segment, *, progress: float = 0.0) -> dict[str, float]:
        """Every epoch is one gradient step on the whole segment. Returns the means of the metrics over epochs."""
        totals: dict[str, float] = {}
        targets = old_logp = None
        for _epoch in range(self._config.num_epochs):
            params, value = forward(self.policy, segment)
            logp, entropy = self._of_actions(segment, params)
            if targets is None or self._name == "impala":  # its V-trace follows the policy from epoch to epoch
                targets = self._targets(segment, value, logp)
                acted = {at: float(segment.logp[at]) for at in logp}
                old_logp = {at: float(logp[at].detach() if self._name == "appo" else acted[at]) for at in logp}
            metrics = self._metrics(targets, value, logp, entropy, old_logp, acted)
            metrics["loss"] = (
                metrics["policy_loss"]
                + self._config.value_coef * metrics["value_loss"]
                - self._config.entropy_coef * metrics["entropy"]
            )
            metrics["gradient_norm"] = torch.tensor(self._move(metrics["loss"], progress))
            for name, metric in metrics.items():
                totals[name] = totals.get(name, 0.0) + float(metric.detach())
        return {name: total / self._config.num_epochs for name, total in totals.items()}

    def _of_actions(self, segment: Segment, params: Any) -> tuple[dict[At, Any], dict[At, Any]]:
        """Log-probability and entropy, with gradients, of each action that counts."""
        logp, entropy = {}, {}
        for at in active_steps(segment):
            mask = None if segment.mask is None else segment.mask[at]
            logp[at], entropy[at] = logp_and_entropy(self.policy.spec.action, params[at], segment.action[at], mask)
        return logp, entropy

    def _targets(self, segment: Segment, value: Any, logp: dict[At, Any]) -> tuple[dict[At, float], dict[At, float]]:
        """`(advantage, value_target)` of each action that counts."""
        config = self._config
        numbers = value.detach().numpy()
        ratio = {at: math.exp(float(logp[at].detach()) - float(segment.logp[at])) for at in logp}
        acts = find_acts(segment, numbers, config.reward_scale)
        if self._name in ("impala", "appo"):
            advantage, excess = vtrace(acts, numbers, ratio, config)
        else:
            ones = dict.fromkeys(ratio, 1.0)
            on_policy = {"gamma": config.gamma, "lam": config.lam, "rho_max": 1.0, "c_max": 1.0}
            advantage, excess = vtrace(acts, numbers, ones, _Settings(**on_policy))
        target = {at: float(numbers[at]) + excess[at] for at in excess}
        if getattr(config, "normalise_advantage", False):
            found = np.array(list(advantage.values()))
            std = found.std(ddof=0 if self._name == "impala" else 1)
            advantage = {at: (gain - found.mean()) / (std + 1e-8) for at, gain in advantage.items()}
        if self._name in ("impala", "appo"):
            advantage = {at: gain * min(ratio[at], config.rho_max) for at, gain in advantage.items()}
        if self._name == "impala":  # what was pushed as far as it may be is pushed no further
            for at, gain in advantage.items():
                if (gain > 0 and ratio[at] > config.max_ratio) or (gain < 0 and ratio[at] * config.max_ratio < 1.0):
                    advantage[at] = 0.0
        return advantage, target

    def _metrics(self, targets: Any, value: Any, logp: Any, entropy: Any, old_logp: Any, acted: Any) -> dict[str, Any]:
        advantage, target = targets
        steps = list(advantage)
        ratio = {at: (logp[at] - old_logp[at]).exp() for at in steps}
        before = {at: math.exp(old_logp[at] - acted[at]) for at in steps}
        loss = LOSSES[self._name]
        metrics = {
            "policy_loss": _mean(loss(self._config, advantage[at], logp[at], ratio[at], before[at]) for at in steps),
            "value_loss": _mean(0.5 * (value[at] - target[at]) ** 2 for at in steps),
            "entropy": _mean(entropy[at] for at in steps),
        }
        if self._name == "impala":
            metrics["ratio"] = _mean(ratio[at] for at in steps)
        if self._name in ("ppo", "appo"):
            metrics["kl"] = _mean(ratio[at] - 1.0 - ratio[at].log() for at in steps)
        return metrics

    def _move(self, loss: Any, progress: float) -> float:
        """Down the loss; the norm of its gradient before it was clipped."""
        config = self._config
        gradients = [gradient.double().numpy() for gradient in torch.autograd.grad(loss, self._parameters)]
        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
        for tower in self._by_tower(gradients):
            length = math.sqrt(sum(float((gradient**2).sum()) for gradient in tower))
            if 0.0 < config.max_grad_norm < length:
                for gradient in tower:
                    gradient *= config.max_grad_norm / (length + 1e-6)
        rate = config.learning_rate * ((1.0 - progress) if config.anneal else 1.0)
        self._num_steps += 1
        for number, (parameter, gradient) in enumerate(zip(self._parameters, gradients, strict=True)):
            self._mean[number] = 0.9 * self._mean[number] + 0.1 * gradient
            self._square[number] = 0.999 * self._square[number] + 0.001 * gradient**2
            mean = self._mean[number] / (1.0 - 0.9**self._num_steps)
            square = self._square[number] / (1.0 - 0.999**self._num_steps)
            with torch.no_grad():
                parameter -= torch.from_numpy(rate * mean / (np.sqrt(square) + config.adam_eps))
        return norm

    def _by_tower(self, gradients: list[Any]) -> list[list[Any]]:
        """Views of them: of a `TwinMLP` those of policy and value apart, of which some parameters hold both."""
        if not isinstance(self.policy.model, TwinMLP):
            return [gradients]
        towers: list[list[Any]] = [[], []]
        for (name, _), gradient in zip(self.policy.named_parameters(), gradients, strict=True):
            if name.startswith(("model.weights", "model.biases")):
                towers[0].append(gradient[0])
                towers[1].append(gradient[1])
            else:
                towers["value" in name].append(gradient)
        return towers


@dataclass(frozen=True)
class _Settings:
    gamma: float
    lam: float
    rho_max: float
    c_max: float


def _log_likelihood(config: Any, advantage: float, logp: Any, ratio: Any, before: float) -> Any:
    return -advantage * logp


def _clipped_ratio(config: Any, advantage: float, logp: Any, ratio: Any, before: float) -> Any:
    """Nothing is gained by a ratio beyond the clip, in the direction that the advantage asks for."""
    if advantage >= 0.0:
        return -advantage * torch.clamp(ratio, max=1.0 + config.clip)
    return -advantage * torch.clamp(ratio, min=1.0 - config.clip)


def _twice_clipped_ratio(config: Any, advantage: float, logp: Any, ratio: Any, before: float) -> Any:
    """Nor by one whose product with the ratio `before` the update, to the policy that acted, is beyond `max_ratio`."""
    if advantage >= 0.0:
        return -advantage * torch.clamp(ratio, max=min(1.0 + config.clip, config.max_ratio / before))
    return -advantage * torch.clamp(ratio, min=max(1.0 - config.clip, 1.0 / config.max_ratio / before))


LOSSES: dict[str, Callable[[Any, float, Any, Any, float], Any]] = {
    "a2c": _log_likelihood,
    "impala": _log_likelihood,
    "ppo": _clipped_ratio,
    "appo": _twice_clipped_ratio,
}


def active_steps(segment: Segment) -> list[At]:
    return [(step, row) for step, row in np.argwhere(segment.active[:-1]).tolist()]


def find_acts(segment: Segment, value: Any, reward_scale: float) -> list[Act]:
    """The acts of each row in order. Rewards that come while a row waits for its turn belong to its last act."""
    acts = []
    for step, row in active_steps(segment):
        reward, now = 0.0, step
        while True:
            reward += reward_scale * float(segment.reward[now, row])
            has_ended = bool(segment.terminated[now, row] or segment.truncated[now, row])
            if has_ended or now + 1 == segment.num_steps or segment.active[now + 1, row]:
                break
            now += 1
        next_value = 0.0 if segment.terminated[now, row] else float(value[now + 1, row])
        is_followed = not has_ended and now + 1 < segment.num_steps
        acts.append(Act((step, row), reward, next_value, (now + 1, row) if is_followed else None))
    return acts


def vtrace(acts: list[Act], value: Any, ratio: dict[At, float], config: Any) -> tuple[dict[At, float], dict[At, float]]:
    """`(advantage, excess)` of each act, as in the paper: excess is what the value target has beyond the value.

    The advantage is without its weight, which multiplies it once it is normalised.
    """
    by_step = {act.at: act for act in acts}
    excess: dict[At, float] = {}
    advantage: dict[At, float] = {}
    for at in sorted(by_step, reverse=True):  # latest first
        act = by_step[at]
        delta = act.reward + config.gamma * act.next_value - float(value[at])
        later = 0.0 if act.next_at is None else excess[act.next_at]
        rho, c = min(ratio[at], config.rho_max), min(ratio[at], config.c_max)
        excess[at] = rho * delta + config.gamma * config.lam * c * later
        advantage[at] = delta + config.gamma * config.lam * later
    return {at: advantage[at] for at in by_step}, {at: excess[at] for at in by_step}


def forward(policy: Policy, segment: Segment) -> tuple[Any, Any]:
    """Parameters and values of all observations `[T + 1, R]`, one moment after the other, with gradients."""
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
    return torch.stack(params).double(), torch.stack(values).double()


def logp_and_entropy(spec: Any, params: Any, action: Any, mask: Any) -> tuple[Any, Any]:
    """Of one action, from the definitions: a softmax over the choices that the mask allows; Gaussians."""
    match spec:
        case Discrete(num_choices):
            return _of_choice(params, int(action), np.ones(num_choices, np.bool_) if mask is None else mask)
        case MultiDiscrete(sizes):
            logp, entropy, start = torch.zeros(()).double(), torch.zeros(()).double(), 0
            for size, choice in zip(sizes, action, strict=True):
                allowed = np.ones(size, np.bool_) if mask is None else mask[start : start + size]
                one = _of_choice(params[start : start + size], int(choice), allowed)
                logp, entropy, start = logp + one[0], entropy + one[1], start + size
            return logp, entropy
        case Continuous():
            mean, log_std = params.chunk(2)  # in units of the bounds
            low, high = torch.tensor(spec.low).double(), torch.tensor(spec.high).double()
            half = (high - low) / 2.0
            normal = torch.distributions.Normal((high + low) / 2.0 + half * mean, half * log_std.exp())
            return normal.log_prob(torch.from_numpy(np.array(action)).double()).sum(), normal.entropy().sum()
    raise TypeError(f"no reference for actions of {spec}")


def _of_choice(logits: Any, choice: int, allowed: Any) -> tuple[Any, Any]:
    where = np.flatnonzero(allowed)
    probs = torch.softmax(logits[torch.from_numpy(where)], 0)
    return probs[int(np.flatnonzero(where == choice)[0])].log(), -(probs * probs.log()).sum()


def _mean(terms: Iterator[Any]) -> Any:
    return torch.stack(list(terms)).mean()
