"""One whole update of DQN and of R2D2, written plainly, as `reference.py` has those of actor-critics.

Nothing of `ludus.learn` is used but forward passes of single rows and steps. Losses are sums over single rows, choices,
atoms and quantiles, in double precision.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from reference import Reference, active_steps, find_acts

from ludus.data import nest as nests
from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.data.transitions import Transitions
from ludus.learn.algorithms.registry import algorithm_class
from ludus.learn.algorithms.replay_learner import ReplayLearner
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy

NUM_CHOICES = 3
TIMES = ("obs", "first", "active", "action", "logp", "reward", "terminated", "truncated", "version", "mask")


class FakeSpec:
    """Of an env, as far as a policy needs it."""

    obs = ArraySpec((4,), np.float32)
    action = Discrete(NUM_CHOICES)


def make_learner(name: str, *, recurrent: str = "none", seed: int = 1, **settings: Any) -> ReplayLearner:
    algorithm_type = algorithm_class(name)
    algorithm: Any = algorithm_type(algorithm_type.Config(**settings))
    network = NetworkConfig(hidden=(8, 8), recurrent=recurrent, recurrent_size=6)
    policy = Policy(algorithm.policy_spec(FakeSpec, network), seed=seed)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():  # the outputs begin near 0: then all choices look the same
            if "tower.weights.2" in name or "policy" in name:
                parameter.mul_(100.0)
    learner = ReplayLearner(algorithm, policy, seed=seed)
    target = learner.networks.targets["target"]
    with torch.no_grad():  # another network, of another opinion
        noise = torch.Generator().manual_seed(7)
        for parameter in target.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=noise))
    return learner


def make_transitions(*, num_rows: int = 12, seed: int = 0, has_mask: bool = False) -> Transitions:
    """Of nobody's policy; some terminated, some were cut off after fewer steps."""
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.standard_normal((2, num_rows, 4)).astype(np.float32)
    mask = next_mask = None
    if has_mask:
        mask, next_mask = rng.random((2, num_rows, NUM_CHOICES)) < 0.5
        for each in (mask, next_mask):
            each[np.arange(num_rows), rng.integers(NUM_CHOICES, size=num_rows)] = True
    return Transitions(
        obs=obs,
        action=rng.integers(NUM_CHOICES, size=num_rows),
        reward=rng.standard_normal(num_rows).astype(np.float32),
        discount=rng.choice(np.float32([0.0, 0.9, 0.81, 0.729]), num_rows),
        next_obs=next_obs,
        mask=mask,
        next_mask=next_mask,
    )


class QReference(Reference):
    """`update` moves policy and target network as `ReplayLearner.update` should; it returns metrics and priorities."""

    def __init__(self, learner: ReplayLearner) -> None:
        super().__init__(learner.algorithm.config.distribution, learner.policy, learner.algorithm.config)
        self.target = copy.deepcopy(learner.networks.targets["target"])

    def update(  # type: ignore[override]
        self, batch: Any, weight: Any = None, *, progress: float = 0.0
    ) -> tuple[dict[str, float], list[float]]:
        if isinstance(batch, Transitions):
            loss, q, priorities = self._of_transitions(batch, weight)
        else:
            loss, q, priorities = self._of_sequences(batch, weight)
        norm = self._move(
            loss + 0.0 * sum(each.sum() for each in self._parameters), progress
        )  # some have no part in it
        self._move_target()
        return {"loss": float(loss.detach()), "q": float(q.detach()), "gradient_norm": norm}, priorities

    # --- DQN

    def _of_transitions(self, batch: Transitions, weight: Any) -> tuple[Any, Any, list[float]]:
        loss, q, priorities = torch.zeros(()).double(), torch.zeros(()).double(), []
        for row in range(batch.num_rows):
            counts = (1.0 if weight is None else float(weight[row])) / batch.num_rows
            ours = self._outputs(self.policy.model, batch.obs[row])[int(batch.action[row])]
            theirs = self._outputs(self.target, batch.next_obs[row]).detach()
            by = self._outputs(self.policy.model, batch.next_obs[row]).detach() if self._config.double else theirs
            allowed = range(NUM_CHOICES) if batch.next_mask is None else np.flatnonzero(batch.next_mask[row])
            best = max(allowed, key=lambda choice: float(self._mean_of(by[choice])))
            reward = self._config.reward_scale * float(batch.reward[row])
            one, size = self._error(ours, theirs[best], reward, float(batch.discount[row]))
            loss = loss + counts * one
            q = q + counts * self._mean_of(ours.detach())
            priorities.append(float(size))
        return loss, q, priorities

    def _outputs(self, model: Any, obs: Any) -> Any:
        """`[choices, numbers of each]`."""
        outputs, value = model(torch.from_numpy(obs[None]))
        outputs, value = outputs[0].double(), value[0].double()
        if self._config.dueling:
            outputs = value + outputs - sum(outputs) / len(outputs)
        return outputs.view(NUM_CHOICES, -1)

    def _mean_of(self, outputs: Any) -> Any:
        if self._name == "c51":
            probs = outputs.exp() / outputs.exp().sum()
            return sum(prob * atom for prob, atom in zip(probs, self._atoms(), strict=True))
        return sum(outputs) / len(outputs)

    def _atoms(self) -> list[float]:
        config = self._config
        gap = (config.v_max - config.v_min) / (config.num_atoms - 1)
        return [config.v_min + gap * number for number in range(config.num_atoms)]

    def _error(self, ours: Any, theirs: Any, reward: float, discount: float) -> tuple[Any, float]:
        """Loss and priority of one row."""
        if self._name == "c51":
            target = self._projected([float(prob) for prob in theirs.exp() / theirs.exp().sum()], reward, discount)
            logs = (ours.exp() / ours.exp().sum()).log()
            loss = sum(p * (math.log(p) - log) for p, log in zip(target, logs, strict=True) if p > 0.0)
            return loss, float(loss.detach())
        if self._name == "qr":
            loss = torch.zeros(()).double()
            for number, quantile in enumerate(ours):
                share = (number + 0.5) / len(ours)
                for sample in theirs:
                    gap = reward + discount * float(sample) - quantile
                    below = 1.0 - share if float(gap.detach()) < 0.0 else share
                    loss = loss + below * self._huber(gap) / self._config.huber / len(theirs)
            return loss, float(loss.detach())
        error = ours[0] - (reward + discount * float(theirs[0]))
        return self._huber(error), abs(float(error.detach()))

    def _huber(self, error: Any) -> Any:
        delta = self._config.huber
        return 0.5 * error**2 if abs(float(error.detach())) <= delta else delta * (error.abs() - 0.5 * delta)

    def _projected(self, probs: list[float], reward: float, discount: float) -> list[float]:
        atoms = self._atoms()
        target = [0.0] * len(atoms)
        for prob, atom in zip(probs, atoms, strict=True):
            moved = min(max(reward + discount * atom, atoms[0]), atoms[-1])
            for number, other in enumerate(atoms):  # what lies between two is shared by how near they are
                target[number] += prob * max(0.0, 1.0 - abs(moved - other) / (atoms[1] - atoms[0]))
        return target

    # --- R2D2

    def _of_sequences(self, whole: Segment, weight: Any) -> tuple[Any, Any, list[float]]:
        config = self._config
        q, of_target = (unroll(self.policy, model, whole, config) for model in (self.policy.model, self.target))
        value = np.zeros(q.shape[:2])
        for step, row in np.ndindex(*value.shape):
            by = (q if config.double else of_target)[step, row].detach()
            mask = None if whole.mask is None else whole.mask[config.burn_in + step, row]
            allowed = range(NUM_CHOICES) if mask is None else np.flatnonzero(mask)
            best = max(allowed, key=lambda choice: float(by[choice]))
            value[step, row] = float(of_target[step, row, best])
        if config.rescale:
            value = np.vectorize(unscaled)(value)
        segment = since(whole, config.burn_in)
        acts = {act.at: act for act in find_acts(segment, value, config.reward_scale)}
        steps = active_steps(segment)
        loss, mean_q, errors = torch.zeros(()).double(), torch.zeros(()).double(), {}
        for at in steps:
            total, discount, act = 0.0, 1.0, acts[at]
            for number in range(config.n_step):
                total += discount * act.reward
                discount *= config.gamma
                if act.next_at is None or number == config.n_step - 1:
                    break
                act = acts[act.next_at]
            total += discount * act.next_value
            if config.rescale:
                total = math.copysign(math.sqrt(abs(total) + 1.0) - 1.0, total) + 1e-3 * total
            ours = q[at][int(segment.action[at])]
            counts = (1.0 if weight is None else float(weight[at[1]])) / len(steps)
            loss = loss + counts * self._huber(ours - total)
            mean_q = mean_q + counts * ours
            errors[at] = abs(float(ours.detach()) - total)
        priorities = []
        for row in range(segment.num_rows):
            own = [error for (_, other), error in errors.items() if other == row] or [0.0]
            priorities.append(config.eta * max(own) + (1.0 - config.eta) * sum(own) / len(own))
        return loss, mean_q, priorities

    def _move_target(self) -> None:
        config = self._config
        share = config.tau
        if config.target_every:
            share = 1.0 if self._num_steps % config.target_every == 0 else 0.0
        for theirs, ours in zip(self.target.parameters(), self.policy.model.parameters(), strict=True):
            theirs.data.copy_((1.0 - share) * theirs.data + share * ours.data)


def unroll(policy: Policy, model: Any, segment: Segment, config: Any) -> Any:
    """Q-values `[T + 1 - burn_in, R, choices]`, one step after the other."""
    state = nests.map(torch.from_numpy, segment.state)
    found = []
    for step in range(segment.num_steps + 1):
        obs, first = torch.from_numpy(segment.obs[step : step + 1]), torch.from_numpy(segment.first[step : step + 1])
        outputs, value, state = model(policy.scaled(obs), state, first)
        if config.dueling:
            outputs = value.unsqueeze(-1) + outputs - outputs.sum(-1, keepdim=True) / NUM_CHOICES
        if step < config.burn_in:
            state = nests.map(torch.detach, state)
        else:
            found.append(outputs[0].double())
    return torch.stack(found)


def since(segment: Segment, start: int) -> Segment:
    fields = {
        name: value[start:] if name in TIMES and value is not None else value
        for name, value in segment.to_nest().items()
    }
    return Segment(**fields)


def unscaled(x: float) -> float:
    """The inverse of R2D2's rescaling, by bisection."""
    low, high = -1e6, 1e6
    for _ in range(200):
        middle = (low + high) / 2.0
        if math.copysign(math.sqrt(abs(middle) + 1.0) - 1.0, middle) + 1e-3 * middle < x:
            low = middle
        else:
            high = middle
    return low
