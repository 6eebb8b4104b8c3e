"""The scale of returns: values are learnt in units of it, whatever the size of an environment's rewards.

The network predicts `(value - mean) / std` of recent value targets. Rewards are divided by `std` before anything is
computed from them, so advantages, value losses and gradients have one size for rewards of 1e-3 and of 1e6. The idea is
PopArt's: https://arxiv.org/abs/1602.07714
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["ValueScale"]

_HORIZON = 100_000.0  # steps: older value targets fade
_MIN_STD = 1e-6


class ValueScale(nn.Module):
    """Mean and std of value targets, part of the policy's weights: a value means nothing without them."""

    mean: torch.Tensor
    std: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("std", torch.ones((), dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @property
    def is_known(self) -> bool:
        return float(self.count) > 0.0

    @property
    def shift(self) -> float:
        """`mean / std`: what to add to the network's output to get the value in units of `std`."""
        return float(self.mean / self.std)

    def forward(self, value: Any) -> Any:
        """The network's output in units of the rewards."""
        return value * self.std.to(value.dtype) + self.mean.to(value.dtype)

    @torch.no_grad()
    def update(self, target: torch.Tensor, active: torch.Tensor, model: Any = None, reduce: Any = None) -> None:
        """Take in value targets, in units of the rewards, where `active`. `reduce` sums a tensor over trainer ranks.

        `model.rescale_value(scale, shift)` is called so that values stay what they were; a model without that method
        keeps its outputs, and its values move with the scale.
        """
        chosen = target[active].double()
        sums = torch.stack([torch.tensor(float(chosen.numel()), dtype=torch.float64), chosen.sum(), chosen @ chosen])
        if reduce is not None:
            reduce(sums)
        num, total, squares = sums.tolist()
        if not num:
            return
        old_mean, old_std, old_count = float(self.mean), float(self.std), float(self.count)
        batch_mean = total / num
        batch_variance = max(squares / num - batch_mean * batch_mean, 0.0)
        if not old_count and batch_variance <= (1e-6 * batch_mean) ** 2:
            return  # all returns are alike, 0 perhaps: there is no scale to be seen yet
        both = old_count + num
        delta = batch_mean - old_mean
        mean = old_mean + delta * num / both if old_count else batch_mean
        variance = batch_variance
        if old_count:
            variance = (old_std**2 * old_count + batch_variance * num + delta**2 * old_count * num / both) / both
        std = max(variance**0.5, _MIN_STD, 1e-6 * abs(mean))
        self.mean.fill_(mean)
        self.std.fill_(std)
        self.count.fill_(min(both, _HORIZON))
        rescale = getattr(model, "rescale_value", None)
        if old_count and rescale is not None:
            rescale(old_std / std, (old_mean - mean) / std)
