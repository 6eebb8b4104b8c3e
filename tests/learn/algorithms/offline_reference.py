"""One whole update of each offline algorithm, written plainly: row by row, in double precision, without our heads, our
learner or our Adam. Only the networks' forward passes are ours.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch

from ludus.data.actions import Continuous, Discrete, MultiDiscrete
from ludus.data.transitions import Transitions
from ludus.learn.algorithms.replay_learner import ReplayLearner


class PlainAdam:
    """As in the paper, in NumPy."""

    def __init__(self, network: torch.nn.Module, config: Any) -> None:
        self.parameters = list(network.parameters())
        self._config = config
        self._mean = [np.zeros(each.shape) for each in self.parameters]
        self._square = [np.zeros(each.shape) for each in self.parameters]
        self._num = 0

    def move(self, loss: Any) -> float:
        """Returns the norm of the gradient before it was clipped."""
        config = self._config
        gradients = [gradient.double().numpy() for gradient in torch.autograd.grad(loss, self.parameters)]
        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
        if 0.0 < config.max_grad_norm < norm:
            gradients = [gradient * (config.max_grad_norm / (norm + 1e-6)) for gradient in gradients]
        self._num += 1
        for number, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            self._mean[number] = 0.9 * self._mean[number] + 0.1 * gradient
            self._square[number] = 0.999 * self._square[number] + 0.001 * gradient**2
            mean = self._mean[number] / (1.0 - 0.9**self._num)
            square = self._square[number] / (1.0 - 0.999**self._num)
            with torch.no_grad():
                parameter -= torch.from_numpy(config.learning_rate * mean / (np.sqrt(square) + config.adam_eps))
        return norm


class OfflineReference:
    """Copies of a learner's networks, before it has learnt anything."""

    def __init__(self, name: str, learner: ReplayLearner) -> None:
        self._name = name
        self._config = learner.algorithm.config
        networks = copy.deepcopy(learner.networks)
        self.policy, self.trained, self.targets = networks.policy, networks.trained, networks.targets
        everything = {"policy": self.policy, **self.trained}
        self._adams = {name: PlainAdam(network, self._config) for name, network in everything.items()}

    def update(self, batch: Transitions) -> dict[str, float]:
        """One gradient step on all rows."""
        rows = range(batch.num_rows)
        if self._name == "bc":
            weights = [1.0 for _ in rows]
            metrics: dict[str, float] = {}
        else:
            metrics, weights = self._value(batch)
        obs = torch.from_numpy(batch.obs)
        params = self.policy.model(obs)[0].double()
        logp, entropy = [], []
        for row in rows:
            mask = None if batch.mask is None else batch.mask[row]
            one, other = self._logp(params[row], batch.action[row], mask)
            logp.append(one)
            entropy.append(other)
        loss = -sum(weight * each for weight, each in zip(weights, logp, strict=True)) / len(rows)
        if self._name == "bc":
            loss = loss - self._config.entropy_coef * sum(entropy) / len(rows)
        metrics["loss"] = float(loss.detach())
        metrics["logp"] = float(sum(logp).detach()) / len(rows)
        metrics["entropy"] = float(sum(entropy).detach()) / len(rows)
        metrics["gradient_norm"] = self._adams["policy"].move(loss)
        if self._name == "iql":
            metrics |= self._critics(batch)
        return metrics

    # --- IQL

    def _value(self, batch: Transitions) -> tuple[dict[str, float], list[float]]:
        """The expectile, and how much each action then counts for the policy."""
        config, num = self._config, batch.num_rows
        obs = torch.from_numpy(batch.obs)
        q = self._q(self.targets["critics_target"], batch).detach().numpy().min(0)
        v = self.trained["value"](obs)[0, :, 0].double()
        loss = 0.0
        for row in range(num):
            excess = float(q[row]) - v[row]
            loss = loss + (config.expectile if float(excess.detach()) > 0 else 1.0 - config.expectile) * excess**2 / num
        metrics = {"value": float(v.detach().mean()), "value_loss": float(loss.detach())}  # type: ignore[attr-defined]
        self._adams["value"].move(loss)
        advantage = q - self.trained["value"](obs)[0, :, 0].detach().numpy()
        weights = [min(math.exp(config.temperature * float(each)), config.max_weight) for each in advantage]
        return {**metrics, "advantage": float(advantage.mean()), "weight": float(np.mean(weights))}, weights

    def _critics(self, batch: Transitions) -> dict[str, float]:
        config, critics = self._config, self.trained["critics"]
        after = self.trained["value"](torch.from_numpy(batch.next_obs))[0, :, 0].detach().numpy()
        q = self._q(critics, batch).double()
        loss = 0.0
        for row in range(batch.num_rows):
            target = config.reward_scale * float(batch.reward[row]) + float(batch.discount[row]) * float(after[row])
            for critic in range(len(q)):
                loss = loss + 0.5 * (q[critic, row] - target) ** 2 / batch.num_rows
        metrics = {"q": float(q.detach().mean()), "critics_loss": float(loss.detach())}  # type: ignore[attr-defined]
        self._adams["critics"].move(loss)
        with torch.no_grad():
            pairs = zip(self.targets["critics_target"].parameters(), critics.parameters(), strict=True)
            for target_parameter, parameter in pairs:
                target_parameter.copy_((1.0 - config.tau) * target_parameter + config.tau * parameter)
        return metrics

    def _q(self, critics: Any, batch: Transitions) -> Any:
        action, obs = self.policy.spec.action, torch.from_numpy(batch.obs)
        match action:
            case Discrete():
                every = critics(obs)
                return torch.stack([every[:, row, int(batch.action[row])] for row in range(batch.num_rows)], 1)
            case MultiDiscrete(sizes):
                choices = [np.eye(size)[batch.action[:, number]] for number, size in enumerate(sizes)]
                return critics(obs, torch.from_numpy(np.concatenate(choices, 1).astype(np.float32)))
        low, high = np.array(action.low), np.array(action.high)
        bounded = np.isfinite(low) & np.isfinite(high)
        unit = batch.action.astype(np.float64)
        unit[:, bounded] = 2.0 * (unit[:, bounded] - low[bounded]) / (high - low)[bounded] - 1.0
        return critics(obs, torch.from_numpy(unit.astype(np.float32)))

    # --- distributions

    def _logp(self, params: Any, action: Any, mask: Any) -> tuple[Any, Any]:
        """Log-probability and entropy of one row."""
        spec = self.policy.spec.action
        if isinstance(spec, Discrete | MultiDiscrete):
            sizes = (spec.num_choices,) if isinstance(spec, Discrete) else spec.num_choices
            logp, entropy, start = 0.0, 0.0, 0
            for size, choice in zip(sizes, np.atleast_1d(action), strict=True):
                allowed = [start + each for each in range(size) if mask is None or mask[start + each]]
                total = torch.logsumexp(torch.stack([params[each] for each in allowed]), 0)
                logp = logp + params[start + int(choice)] - total
                entropy = entropy - sum((params[each] - total).exp() * (params[each] - total) for each in allowed)
                start += size
            return logp, entropy
        assert isinstance(spec, Continuous)
        assert self.policy.log_std is not None
        logp, entropy = 0.0, 0.0
        for number, log_std in enumerate(self.policy.log_std.double()):
            low, high = spec.low[number], spec.high[number]
            is_bounded = math.isfinite(low) and math.isfinite(high)
            half = (high - low) / 2.0 if is_bounded else 1.0
            unit = (float(action[number]) - (high + low) / 2.0) / half if is_bounded else float(action[number])
            std = log_std.exp()
            mean = params[number]
            if self.policy.spec.squash:
                within = min(max(unit, -1.0 + 1e-6), 1.0 - 1e-6)
                logp = logp - math.log(1.0 - within**2)
                unit = math.atanh(within)
            logp = logp - 0.5 * ((unit - mean) / std) ** 2 - log_std - 0.5 * math.log(2.0 * math.pi) - math.log(half)
            entropy = entropy + log_std + 0.5 * math.log(2.0 * math.pi * math.e) + math.log(half)
        return logp, entropy
