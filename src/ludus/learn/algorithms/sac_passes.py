"""SAC's gradients written out, for observations that are vectors and continuous actions, on the CPU.

The same numbers as `SAC` has by torch's graph, which at these sizes costs a third of a gradient step; a test compares
both with a plain version.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.learn.algorithms.algorithm import Loss, Networks
from ludus.learn.algorithms.replay_algorithm import ReplayView
from ludus.learn.networks.stack_passes import StackMemory, StackPasses
from ludus.learn.networks.stacked import SingleMLP
from ludus.learn.ops.distributions.tanh_gaussian import MAX_LOG_STD, MIN_LOG_STD, TanhGaussian

__all__ = ["DrawnActions", "SACPasses"]

_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
_Array = NDArray[np.float32]


class SACPasses:
    """Of the networks of one learner; `fits` says whether it can be used for them."""

    def __init__(self, networks: Networks) -> None:
        policy: Any = networks.policy
        self._head: TanhGaussian = policy.head
        self._policy = StackPasses(policy.model.tower)
        critics: Any = networks.trained["critics"]
        target: Any = networks.targets["critics_target"]
        memory = StackMemory()  # the target's pass is over before the critics' begins
        self._critics, self._target = StackPasses(critics.stacked, memory), StackPasses(target.stacked, memory)

    @staticmethod
    def fits(networks: Networks) -> bool:
        policy, critics = networks.policy, networks.trained["critics"]
        return (
            isinstance(policy.head, TanhGaussian)
            and isinstance(policy.model, SingleMLP)
            and getattr(critics, "stacked", None) is not None
            and policy.model.tower.weights[0].device.type == "cpu"
        )

    def act(self, view: ReplayView, next_obs: _Array, obs: _Array | None) -> None:
        """Draw actions at `next_obs` and, for the policy's own step, at `obs`, in one pass."""
        both = [next_obs] if obs is None else [next_obs, obs]
        size = self._head.bounds.size
        noise = [torch.empty(len(each), size).normal_(generator=view.generator).numpy().T for each in both]
        outputs = self._policy.forward(np.concatenate(both))[0]
        self._actions = DrawnActions.of_outputs(outputs, np.concatenate(noise, axis=1))

    def critics_loss(self, view: ReplayView, obs: _Array, next_obs: _Array, alpha: float) -> tuple[Loss, _Array]:
        """The loss of the critics, and the error of each row."""
        batch = view.batch
        assert batch is not None
        share = view.shares(len(obs))
        chosen = self._actions.rows(slice(None, len(obs)))
        best = self._target.forward(next_obs, chosen.unit.T)[:, 0].min(axis=0)
        best -= alpha * chosen.logp
        target = batch.reward.numpy() + batch.discount.numpy() * best
        q = self._critics.forward(obs, self._head.bounds.to_unit(batch.action).numpy())[:, 0]
        error = q - target
        of_q = error * share
        self._critics.backward(of_q[:, None])
        metrics = {"q": float((q @ share).mean())}
        return Loss(0.5 * float(np.vdot(error, of_q)), metrics, "critics", has_gradient=True), error

    def policy_loss(self, view: ReplayView, obs: _Array, alpha: float) -> tuple[Loss, _Array]:
        """The loss of the policy, and the log-probability of each row's action."""
        num_rows = len(obs)
        share = view.shares(num_rows)
        second = slice(num_rows, None)
        chosen = self._actions.rows(second)
        q = self._critics.forward(obs, chosen.unit.T)[:, 0]
        least = q.argmin(axis=0) if len(q) > 1 else np.zeros(num_rows, np.int64)
        of_q = -share
        of_unit = np.empty_like(chosen.unit)
        action = slice(obs.shape[1], None)
        for tower in range(len(q)):
            rows = np.flatnonzero(least == tower)
            if len(rows):
                of_unit[:, rows] = self._critics.input_gradient(of_q[rows][None], tower, rows, action).T
        self._policy.backward(chosen.gradient(of_unit, np.float32(alpha) * share)[None], second)
        value = alpha * chosen.logp - q.min(axis=0)
        metrics = {"entropy": -float(chosen.logp @ share), "alpha": alpha}
        return Loss(float(value @ share), metrics, has_gradient=True), chosen.logp

    def alpha(self, networks: Networks) -> float:
        return math.exp(self._log_alpha(networks).item())

    def temperature_loss(self, view: ReplayView, logp: _Array, target_entropy: float) -> Loss:
        log_alpha = self._log_alpha(view.networks)
        share = view.shares(len(logp))
        excess = float((logp + np.float32(target_entropy)) @ share)
        assert log_alpha.grad is not None
        log_alpha.grad.fill_(-excess)
        return Loss(-log_alpha.item() * excess, {}, "temperature", has_gradient=True)

    def _log_alpha(self, networks: Networks) -> torch.Tensor:
        temperature: Any = networks.trained["temperature"]
        log_alpha: torch.Tensor = temperature.log_alpha
        return log_alpha


class DrawnActions(NamedTuple):
    """Drawn from means and logs of the std, as `TanhGaussian` does it; rows are along the last axis."""

    raw: _Array  # [size, N] logs of the std, before they are bounded
    offset: _Array  # [size, N] how far noise moved them
    unit: _Array  # [size, N] in units of their bounds
    logp: _Array  # [N]

    @classmethod
    def of_outputs(cls, outputs: _Array, noise: _Array) -> DrawnActions:
        """Of `outputs` `[2 size, N]`."""
        size = len(noise)
        raw = outputs[size:]
        log_std = raw.clip(MIN_LOG_STD, MAX_LOG_STD)
        offset = np.exp(log_std)
        offset *= noise
        u = outputs[:size] + offset
        # log(1 - tanh²(u)) = -2 stretch, finite for any u
        stretch = np.logaddexp(np.float32(0.0), np.float32(-2.0) * u)
        stretch += u
        log_std += np.float32(0.5) * noise * noise
        log_std -= np.float32(2.0) * stretch
        logp = -log_std.sum(axis=0)
        logp -= np.float32(size * (_HALF_LOG_TAU + 2.0 * math.log(2.0)))
        return cls(raw, offset, np.tanh(u), logp)

    def rows(self, rows: slice) -> DrawnActions:
        return DrawnActions(self.raw[:, rows], self.offset[:, rows], self.unit[:, rows], self.logp[rows])

    def gradient(self, of_unit: _Array, of_logp: Any) -> _Array:
        """Of the outputs `[2 size, N]`."""
        of_u = of_unit * (np.float32(1.0) - self.unit * self.unit)
        of_u += np.float32(2.0) * of_logp * self.unit
        of_log_std = of_u * self.offset
        of_log_std -= of_logp
        of_log_std *= (self.raw >= MIN_LOG_STD) & (self.raw <= MAX_LOG_STD)
        return np.concatenate([of_u, of_log_std])
