"""One whole update of SAC and TD3, written plainly: targets row by row, losses, gradients, clipping, Adam, targets that
follow.

Nothing of `ludus.learn` is used but the initial weights of vector networks; all is in double precision and by torch's
own autograd. The noise is what the learner's generator draws, in its order: for `next_obs`, then for `obs`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ludus.data.actions import Continuous, Discrete
from ludus.data.transitions import Transitions
from ludus.learn.algorithms.replay_learner import ReplayLearner

Tensors = dict[str, torch.Tensor]


def make_transitions(action: Any, *, num_rows: int = 7, seed: int = 0, has_mask: bool = False) -> Transitions:
    """Of three steps each: some terminated, some cut off earlier."""
    rng = np.random.default_rng([seed, 5])
    numbers = [rng.standard_normal((num_rows, 4)).astype(np.float32) for _ in range(2)]
    masks: list[Any] = [None, None]
    if isinstance(action, Discrete):
        chosen: Any = rng.integers(action.num_choices, size=num_rows)
        if has_mask:
            masks = [rng.random((num_rows, action.num_choices)) < 0.6 for _ in range(2)]
            for mask in masks:
                mask[np.arange(num_rows), chosen] = True
    else:
        chosen = rng.uniform(action.low, action.high, (num_rows, action.size)).astype(np.float32)
    return Transitions(
        obs=numbers[0],
        action=chosen,
        reward=rng.standard_normal(num_rows).astype(np.float32),
        discount=rng.permutation(np.resize([0.0, 0.9, 0.9**2, 0.9**3], num_rows)).astype(np.float32),
        next_obs=numbers[1],
        mask=masks[0],
        next_mask=masks[1],
    )


class ReplayReference:
    """Copies of a learner's networks. `update` moves them as `ReplayLearner.update` should with one minibatch."""

    def __init__(self, name: str, learner: ReplayLearner, *, seed: int) -> None:
        self._name = name
        self._config = learner.algorithm.config
        self._spec = learner.policy.spec
        self._activation = torch.tanh if self._spec.network.activation == "tanh" else torch.relu
        self.networks: dict[str, Tensors] = {
            name: {key: tensor.detach().double().clone() for key, tensor in network.state_dict().items()}
            for name, network in networks_of(learner).items()
        }
        self._moments: dict[str, dict[str, list[np.ndarray]]] = {}
        self._num_steps: dict[str, int] = {}
        self._num_updates = 0
        self._generator = torch.Generator().manual_seed(seed)

    def update(self, batch: Transitions, weight: Any = None) -> tuple[dict[str, float], np.ndarray]:
        """The metrics, and the priorities of the rows."""
        config = self._config
        rows = _Rows(batch, None if weight is None else torch.from_numpy(weight).double(), config.reward_scale)
        rows.obs, rows.next_obs = self._scaled(rows.obs), self._scaled(rows.next_obs)
        has_policy = (self._num_updates + 1) % config.policy_every == 0
        step = {"sac": self._sac, "td3": self._td3}[self._name]
        step = self._discrete_sac if isinstance(self._spec.action, Discrete) else step
        metrics, priorities = step(rows, has_policy)
        self._num_updates += 1
        if self._name == "sac" or has_policy:
            self._follow("critics_target", self.networks["critics"])
        if self._name == "td3" and has_policy:
            actor = {name.removeprefix("model."): tensor for name, tensor in self.networks["policy"].items()}
            self._follow("policy_target", actor)
        return metrics, priorities

    # --- algorithms

    def _sac(self, rows: _Rows, has_policy: bool) -> tuple[dict[str, float], np.ndarray]:
        alpha = self._alpha()
        next_action, next_logp = _squashed(self._actor("policy", rows.next_obs), self._noise(rows))
        next_q = self._q("critics_target", rows.next_obs, next_action)
        target = [
            rows.reward[n] + rows.discount[n] * (next_q[:, n].min() - alpha * next_logp[n]) for n in range(rows.num)
        ]
        metrics, priorities = self._critics(rows, torch.stack(target).detach())
        if has_policy:
            action, logp = _squashed(self._actor("policy", rows.obs), self._noise(rows))
            q = self._q("critics", rows.obs, action)
            terms = [alpha * logp[n] - q[:, n].min() for n in range(rows.num)]
            metrics["loss"] = self._descend("policy", rows.mean(terms))
            metrics["entropy"] = -float(rows.mean(list(logp.detach())))
            metrics["alpha"] = float(alpha)
            size = self._spec.action.size
            target_entropy = -size if self._config.target_entropy is None else self._config.target_entropy
            self._temperature(rows, logp.tolist(), [target_entropy] * rows.num)
        return metrics, priorities

    def _discrete_sac(self, rows: _Rows, has_policy: bool) -> tuple[dict[str, float], np.ndarray]:
        alpha = self._alpha()
        logits = self._actor("policy", rows.next_obs)
        next_q = self._q("critics_target", rows.next_obs, None)
        target = []
        for n in range(rows.num):
            value = 0.0
            for choice, prob in _probs(logits[n], rows.next_mask, n).items():
                value = value + prob * (next_q[:, n, choice].min() - alpha * prob.log())
            target.append(rows.reward[n] + rows.discount[n] * value)
        metrics, priorities = self._critics(rows, torch.stack(target).detach())
        if has_policy:
            logits, q = self._actor("policy", rows.obs), self._q("critics", rows.obs, None).detach()
            terms, entropies, target_entropies = [], [], []
            for n in range(rows.num):
                probs = _probs(logits[n], rows.mask, n)
                terms.append(sum(p * (alpha * p.log() - q[:, n, choice].min()) for choice, p in probs.items()))
                entropies.append(-sum(float(p.detach() * p.detach().log()) for p in probs.values()))
                share = self._config.target_entropy_share * math.log(len(probs))
                target_entropies.append(share if self._config.target_entropy is None else self._config.target_entropy)
            metrics["loss"] = self._descend("policy", rows.mean(terms))
            metrics["entropy"] = float(rows.mean(entropies))
            self._temperature(rows, [-each for each in entropies], target_entropies)
        return metrics, priorities

    def _td3(self, rows: _Rows, has_policy: bool) -> tuple[dict[str, float], np.ndarray]:
        config = self._config
        noise = (self._noise(rows) * config.target_noise).clamp(-config.target_noise_clip, config.target_noise_clip)
        next_action = (torch.tanh(self._actor("policy_target", rows.next_obs)) + noise).clamp(-1.0, 1.0)
        next_q = self._q("critics_target", rows.next_obs, next_action)
        target = [rows.reward[n] + rows.discount[n] * next_q[:, n].min() for n in range(rows.num)]
        metrics, priorities = self._critics(rows, torch.stack(target).detach())
        if has_policy:
            q = self._q("critics", rows.obs, torch.tanh(self._actor("policy", rows.obs)))
            metrics["loss"] = self._descend("policy", -rows.mean(list(q[0])))
        return metrics, priorities

    def _critics(self, rows: _Rows, target: torch.Tensor) -> tuple[dict[str, float], np.ndarray]:
        if isinstance(self._spec.action, Discrete):
            q = self._q("critics", rows.obs, None)
            q = torch.stack([q[:, n, rows.action[n]] for n in range(rows.num)], 1)
        else:
            q = self._q("critics", rows.obs, self._unit(rows.action))
        errors = q - target
        loss = rows.mean([0.5 * errors[:, n].square().sum() for n in range(rows.num)])
        priorities = errors.detach().abs().mean(0).numpy()
        mean_q = float(rows.mean([q[:, n].detach().mean() for n in range(rows.num)]))
        return {"critics_loss": self._descend("critics", loss), "q": mean_q}, priorities

    def _temperature(self, rows: _Rows, logps: list[float], targets: list[float]) -> None:
        if self._config.alpha is not None:
            return
        log_alpha = self.networks["temperature"]["log_alpha"].requires_grad_()
        terms = [-log_alpha * (logp + target) for logp, target in zip(logps, targets, strict=True)]
        self._descend("temperature", rows.mean(terms))

    def _alpha(self) -> Any:
        if self._config.alpha is not None:
            return self._config.alpha
        return self.networks["temperature"]["log_alpha"].exp().detach()

    # --- networks

    def _scaled(self, obs: torch.Tensor) -> torch.Tensor:
        policy = self.networks["policy"]
        if "normaliser.mean_0" not in policy:
            return obs
        scaled = (obs - policy["normaliser.mean_0"]) / (policy["normaliser.variance_0"] + 1e-8).sqrt()
        return scaled.clamp(-10.0, 10.0)

    def _actor(self, name: str, obs: torch.Tensor) -> torch.Tensor:
        prefix = "model.tower." if name == "policy" else "tower."
        return self._towers(self.networks[name], prefix, obs)[0]

    def _q(self, name: str, obs: torch.Tensor, action: Any) -> torch.Tensor:
        """`[K, N]`, or `[K, N, choices]`."""
        inputs = obs if action is None else torch.cat([obs, action], -1)
        outputs = self._towers(self.networks[name], "stacked.", inputs)
        return outputs if action is None else outputs.squeeze(-1)

    def _towers(self, tensors: Tensors, prefix: str, x: torch.Tensor) -> torch.Tensor:
        for tensor in tensors.values():
            tensor.requires_grad_()
        last = tensors[f"{prefix}last_weight"]
        outputs = []
        for tower in range(len(last)):
            h = x
            for layer in range(len(self._spec.network.hidden)):
                h = h @ tensors[f"{prefix}weights.{layer}"][tower] + tensors[f"{prefix}biases.{layer}"][tower]
                h = self._activation(h)
            outputs.append(h @ last[tower].T + tensors[f"{prefix}last_bias"][tower].T)
        return torch.stack(outputs)

    def _unit(self, action: torch.Tensor) -> torch.Tensor:
        spec = self._spec.action
        assert isinstance(spec, Continuous)
        low, high = torch.tensor(spec.low).double(), torch.tensor(spec.high).double()
        return 2.0 * (action - low) / (high - low) - 1.0

    def _noise(self, rows: _Rows) -> torch.Tensor:
        return torch.empty(rows.num, self._spec.action.size).normal_(generator=self._generator).double()

    # --- steps

    def _descend(self, name: str, loss: torch.Tensor) -> float:
        """One step of Adam along the clipped gradient; the loss before it."""
        config, tensors = self._config, self.networks[name]
        gradients = torch.autograd.grad(loss, list(tensors.values()), allow_unused=True)
        arrays = {key: g.numpy() for key, g in zip(tensors, gradients, strict=True) if g is not None}
        norm = math.sqrt(sum(float((g**2).sum()) for g in arrays.values()))
        scale = config.max_grad_norm / (norm + 1e-6) if 0.0 < config.max_grad_norm < norm else 1.0
        moments = self._moments.setdefault(name, {key: [0.0 * g, 0.0 * g] for key, g in arrays.items()})
        self._num_steps[name] = number = self._num_steps.get(name, 0) + 1
        for key, g in arrays.items():
            first, second = moments[key]
            moments[key] = [0.9 * first + 0.1 * scale * g, 0.999 * second + 0.001 * (scale * g) ** 2]
            mean, square = moments[key][0] / (1.0 - 0.9**number), moments[key][1] / (1.0 - 0.999**number)
            step = config.learning_rate * mean / (np.sqrt(square) + config.adam_eps)
            tensors[key] = tensors[key].detach() - torch.as_tensor(step)
        self.networks[name] = {key: tensor.detach() for key, tensor in tensors.items()}
        return float(loss.detach())

    def _follow(self, name: str, source: Tensors) -> None:
        tau = self._config.tau
        self.networks[name] = {
            key: (1.0 - tau) * tensor.detach() + tau * source[key].detach()
            for key, tensor in self.networks[name].items()
        }


class _Rows:
    def __init__(self, batch: Transitions, weight: Any, reward_scale: float) -> None:
        self.num = batch.num_rows
        self.obs, self.next_obs = torch.from_numpy(batch.obs).double(), torch.from_numpy(batch.next_obs).double()
        self.action = torch.from_numpy(batch.action)
        if self.action.is_floating_point():
            self.action = self.action.double()
        self.reward, self.discount = reward_scale * batch.reward.astype(float), batch.discount.astype(float)
        self.mask, self.next_mask = batch.mask, batch.next_mask
        self._weight = weight

    def mean(self, terms: list[Any]) -> Any:
        weights = [1.0] * self.num if self._weight is None else self._weight
        return sum(weight * term for weight, term in zip(weights, terms, strict=True)) / self.num


def _squashed(outputs: torch.Tensor, noise: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions in units of the bounds, and their log-probability, by the change of variables."""
    mean, log_std = outputs.chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-20.0, 2.0).exp())
    u = normal.mean + normal.stddev * noise
    action = torch.tanh(u)
    return action, (normal.log_prob(u) - torch.log(1.0 - action.square())).sum(-1)


def _probs(logits: torch.Tensor, mask: Any, row: int) -> dict[int, torch.Tensor]:
    """Of the choices that are allowed."""
    allowed = range(len(logits)) if mask is None else np.flatnonzero(mask[row]).tolist()
    probs = torch.softmax(logits[list(allowed)], 0)
    return dict(zip(allowed, probs, strict=True))


def networks_of(learner: ReplayLearner) -> dict[str, torch.nn.Module]:
    networks = learner.networks
    return {"policy": networks.policy, **networks.trained, **networks.targets}
