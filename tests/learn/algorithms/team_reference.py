"""One whole update of VDN and QMIX, written plainly: one agent, one step and one env at a time.

Nothing of `ludus.learn` is used but the policy model's forward pass of single rows and steps; all else is in double
precision.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch

from ludus.data.segment import Segment
from ludus.learn.algorithms.replay_learner import ReplayLearner

Tensors = dict[str, torch.Tensor]


class TeamReference:
    """Copies of a learner's networks. `update` moves them as `ReplayLearner.update` should with one minibatch."""

    def __init__(self, learner: ReplayLearner) -> None:
        self._config = learner.algorithm.config
        self._num_agents = learner.algorithm.num_agents
        self.policy = copy.deepcopy(learner.policy)
        self.target = copy.deepcopy(learner.networks.targets["target"])
        mixers = {**learner.networks.trained, **learner.networks.targets}
        self.mixer = _tensors(mixers["mixer"].core) if "mixer" in mixers else None
        self.mixer_target = _tensors(mixers["mixer_target"]) if "mixer" in mixers else None
        self._normaliser = getattr(mixers.get("mixer"), "normaliser", None)
        self._moments: dict[str, list[np.ndarray]] = {}
        self._num_updates = 0

    def update(self, segment: Segment, weight: Any = None) -> tuple[dict[str, float], np.ndarray]:
        """`segment` is joined. The metrics, and the priorities of its rows."""
        config, (num_steps, num_envs) = self._config, segment.reward.shape
        start = min(config.burn_in, num_steps - 1)
        loss, total_q, num_active = torch.zeros((), dtype=torch.float64), 0.0, 0
        errors: list[list[float]] = [[] for _ in range(num_envs)]
        for env in range(num_envs):
            share = 1.0 if weight is None else float(weight[env])
            online = [self._q_values(self.policy.model, segment, env, agent, start) for agent in self._agents]
            offline = [self._q_values(self.target, segment, env, agent, start) for agent in self._agents]
            values = {step: self._value(segment, env, step, online, offline) for step in range(start, num_steps + 1)}
            for step in range(start, num_steps):
                if not segment.active[step, env]:
                    continue
                each = [
                    online[agent][step][int(segment.action[step, env, agent])]
                    if segment.obs["active"][step, env, agent]
                    else torch.zeros((), dtype=torch.float64)
                    for agent in self._agents
                ]
                q = self._mix(self.mixer, each, segment, env, step)
                target = self._return(segment, env, step, values)
                error = q - target
                size = abs(float(error.detach()))
                huber = 0.5 * error**2 if size <= config.huber else config.huber * (error.abs() - 0.5 * config.huber)
                counts = getattr(config, "pessimism", 1.0) if float(error.detach()) > 0.0 else 1.0
                loss = loss + share * counts * huber
                total_q += share * float(q.detach())
                errors[env].append(size)
                num_active += 1
        loss = loss / num_active
        priorities = [config.eta * max(of) + (1.0 - config.eta) * sum(of) / len(of) for of in errors]
        norms = self._descend(loss)
        self._follow()
        return {"loss": float(loss.detach()), "q": total_q / num_active, **norms}, np.array(priorities)

    @property
    def _agents(self) -> range:
        return range(self._num_agents)

    # --- values

    def _q_values(self, model: Any, segment: Segment, env: int, agent: int, start: int) -> dict[int, torch.Tensor]:
        """Of all choices at each step from `start` on, one forward pass after the other."""
        state = None
        if segment.state is not None:
            state = {key: torch.from_numpy(leaf[env, agent])[None] for key, leaf in segment.state.items()}
        found = {}
        for step in range(segment.num_steps + 1):
            obs = self._scaled(self.policy.normaliser, _double(segment.obs["obs"][step, env, agent]))[None].float()
            if state is None:
                outputs = model(obs)[0]
            else:
                first = torch.tensor([[bool(segment.first[step, env])]])
                with torch.set_grad_enabled(step >= start and torch.is_grad_enabled()):
                    outputs, _, state = model(obs[None], state, first)
                outputs = outputs[0]
            if step >= start:
                found[step] = outputs[0].double()
        return found

    def _value(self, segment: Segment, env: int, step: int, online: Any, offline: Any) -> float:
        """Of the team, by the target networks."""
        each = []
        for agent in self._agents:
            by = (online if self._config.double else offline)[agent][step].detach()
            choices = range(len(by))
            if segment.mask is not None:
                choices = np.flatnonzero(segment.mask[step, env].reshape(self._num_agents, -1)[agent])
            best = max(choices, key=lambda choice: float(by[choice]))
            counts = bool(segment.obs["active"][step, env, agent])
            each.append(offline[agent][step][int(best)].detach() * (1.0 if counts else 0.0))
        total: torch.Tensor = self._mix(self.mixer_target, each, segment, env, step)
        return float(total.detach())

    def _return(self, segment: Segment, env: int, step: int, values: dict[int, float]) -> float:
        config = self._config
        total, factor = 0.0, 1.0
        for _ in range(config.n_step):
            total += factor * config.reward_scale * float(segment.reward[step, env])
            if segment.terminated[step, env]:
                return total
            factor *= config.gamma
            is_cut_off = bool(segment.truncated[step, env])
            step += 1
            if is_cut_off or step == segment.num_steps:
                break
        return total + factor * values[step]

    def _mix(self, mixer: Tensors | None, each: list[Any], segment: Segment, env: int, step: int) -> Any:
        """The formula of the paper, unit by unit."""
        if mixer is None:
            return sum(each)
        state = self._state(segment, env, step)
        size, hyper_size = self._config.mixer_size, self._config.hyper_size
        hidden = mixer["first.weight"] @ state + mixer["first.bias"]
        parts = [hidden[number * hyper_size : (number + 1) * hyper_size].clamp(min=0.0) for number in range(3)]
        bias_1 = hidden[3 * hyper_size :]
        weight_1 = (mixer["weight_1.weight"] @ parts[0] + mixer["weight_1.bias"]).abs()
        weight_2 = (mixer["weight_2.weight"] @ parts[1] + mixer["weight_2.bias"]).abs()
        total = (mixer["bias_2.weight"] @ parts[2] + mixer["bias_2.bias"])[0]
        for unit in range(size):
            x = bias_1[unit]
            for agent, q in enumerate(each):
                x = x + weight_1[agent * size + unit] * q
            total = total + weight_2[unit] * (x if float(x.detach()) > 0.0 else x.exp() - 1.0)
        return total

    def _state(self, segment: Segment, env: int, step: int) -> torch.Tensor:
        if "global_state" in segment.obs:
            return self._scaled(self._normaliser, _double(segment.obs["global_state"][step, env]))
        each = [_double(segment.obs["obs"][step, env, agent]) for agent in self._agents]
        return torch.cat([self._scaled(self.policy.normaliser, obs) for obs in each])

    @staticmethod
    def _scaled(normaliser: Any, x: torch.Tensor) -> torch.Tensor:
        if normaliser is None:
            return x
        scaled = (x - normaliser.mean_0.double()) / (normaliser.variance_0.double() + 1e-8).sqrt()
        return scaled.clamp(-10.0, 10.0)

    # --- steps

    def _descend(self, loss: torch.Tensor) -> dict[str, float]:
        """One step of Adam along the gradient of each network, clipped by itself. Returns the norms before it."""
        networks = {"": dict(self.policy.named_parameters())}
        if self.mixer is not None:
            networks["mixer_"] = self.mixer
        found = torch.autograd.grad(loss, [p for own in networks.values() for p in own.values()], allow_unused=True)
        gradients = iter(found)
        self._num_updates += 1
        norms = {}
        for prefix, own in networks.items():
            arrays = {name: next(gradients) for name in own}
            arrays = {name: np.zeros(own[name].shape) if g is None else g.numpy() for name, g in arrays.items()}
            norm = math.sqrt(sum(float((g**2).sum()) for g in arrays.values()))
            norms[f"{prefix}gradient_norm"] = norm
            limit = self._config.max_grad_norm
            scale = limit / (norm + 1e-6) if 0.0 < limit < norm else 1.0
            for name, g in arrays.items():
                self._move(own[name], f"{prefix}{name}", scale * g)
        return norms

    def _move(self, parameter: torch.Tensor, name: str, gradient: np.ndarray) -> None:
        config, number = self._config, self._num_updates
        moments = self._moments.setdefault(name, [np.zeros_like(gradient), np.zeros_like(gradient)])
        moments[0] = 0.9 * moments[0] + 0.1 * gradient
        moments[1] = 0.999 * moments[1] + 0.001 * gradient**2
        mean, square = moments[0] / (1.0 - 0.9**number), moments[1] / (1.0 - 0.999**number)
        with torch.no_grad():
            parameter -= torch.from_numpy(config.learning_rate * mean / (np.sqrt(square) + config.adam_eps))

    def _follow(self) -> None:
        tau = self._config.tau
        pairs = list(zip(self.target.parameters(), self.policy.model.parameters(), strict=True))
        if self.mixer is not None and self.mixer_target is not None:
            pairs += [(self.mixer_target[name], self.mixer[name]) for name in self.mixer]
        with torch.no_grad():
            for ours, theirs in pairs:
                ours.mul_(1.0 - tau).add_(theirs, alpha=tau)


def _double(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(array)).double()


def _tensors(module: torch.nn.Module) -> Tensors:
    found = {name: tensor.detach().double().clone() for name, tensor in module.state_dict().items()}
    return {name: tensor.requires_grad_() for name, tensor in found.items()}
