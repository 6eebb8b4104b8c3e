"""Samples: what a learner is given, as NumPy arrays, and how algorithms see it, as tensors."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.segment import Segment
from ludus.learn import ops
from ludus.learn.algorithms.algorithm import Networks
from ludus.learn.policies.policy import Policy

__all__ = ["Sample", "SampleView"]

_MOST_OBS = 4096  # of one forward pass without gradients: images must not need memory for all activations at once


class Sample(NamedTuple):
    """A segment to learn from; `keys` and `weight`, one entry for each of its R rows, if it is from a replay table."""

    segment: Segment
    keys: NDArray[Any] | None = None  # items of the table; `Update.priorities` are theirs
    weight: NDArray[np.float32] | None = None  # importance: what a row's steps count in means


@dataclass(kw_only=True)
class SampleView:
    """A whole sample, and what networks say of it; for `Algorithm.targets`. Call it without gradients."""

    segment: Segment  # of tensors; rewards are scaled
    networks: Networks
    weight: Any = None  # `[R]`, see `Sample`
    row: Any = None  # `[R]` the number of each row, where there are keys
    shift: float = 0.0  # from the network's values to those in units of the policy's value scale
    precision: str = "float32"
    reduce: Any = None  # sums a tensor over trainer ranks, in place

    def values(self) -> Any:
        """The policy's values `[T + 1, R]`; cheaper than `evaluate`."""
        segment, policy = self.segment, self.networks.policy
        if policy.is_recurrent:
            return self.evaluate()[1]
        with self.autocast():
            values = torch.cat([policy.values(obs) for obs in self._parts()])
        return values.float().view(segment.first.shape) + self.shift

    def gae_targets(self, *, gamma: float, lam: float, is_normalised: bool) -> dict[str, Any]:
        """`advantage` and `value_target`, for `Algorithm.targets`."""
        segment = self.segment
        advantage, value_target = ops.gae(segment.reward, self.values(), *segment.ends, gamma=gamma, lam=lam)
        if is_normalised:
            advantage = ops.normalise(advantage, segment.active[:-1], self.reduce)
        return {"advantage": advantage, "value_target": value_target}

    def evaluate(self, policy: Policy | None = None) -> tuple[Any, Any]:
        """Parameters `[T + 1, R, ...]` and values `[T + 1, R]` by the policy, or by a target network of its kind."""
        segment, policy = self.segment, policy or self.networks.policy
        with self.autocast():
            if policy.is_recurrent:
                params, value = policy.evaluate(segment.obs, segment.state, segment.first)
            else:
                parts = [policy.evaluate(obs) for obs in self._parts()]
                params = torch.cat([params for params, _ in parts]).view(*segment.first.shape, -1)
                value = torch.cat([value for _, value in parts]).view(segment.first.shape)
        return params.float(), value.float() + self.shift

    def values_and_logp(self) -> tuple[Any, Any]:
        """The policy's values `[T + 1, R]`, and the log-probabilities `[T, R]` that it gives to the actions now."""
        params, value = self.evaluate()
        segment = self.segment
        mask = None if segment.mask is None else segment.mask[:-1]
        return value, self.networks.policy.head.logp_and_entropy(params[:-1], segment.action, mask)[0]

    def autocast(self) -> Any:
        """The context of forward passes, for `precision`."""
        if self.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.segment.reward.device.type, dtype=getattr(torch, self.precision))

    def _parts(self) -> list[Any]:
        flat = nests.map(lambda leaf: leaf.flatten(0, 1), self.segment.obs)
        starts = range(0, self.segment.first.numel(), _MOST_OBS)
        return [nests.map(lambda leaf, s=start: leaf[s : s + _MOST_OBS], flat) for start in starts]
