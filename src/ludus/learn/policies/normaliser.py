"""Observations brought to mean 0 and std 1 by what was seen so far; part of the policy's weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.networks.encoder import has_no_scale

__all__ = ["Normaliser"]

_CLIP = 10.0
_EPS = 1e-8


class Normaliser(nn.Module):
    """Counts, means and variances of every float leaf, and of integers that have no scale of their own.

    Those are integers that our networks read as numbers and whose spec does not bound them; as with images, the
    entries of such a leaf with several axes share one mean and one variance. All other leaves pass unchanged.
    """

    def __init__(self, obs: Nest, config: NetworkConfig) -> None:
        super().__init__()
        self._paths = nests.paths(obs)
        leaves = nests.leaves(obs)
        self._num_axes = [len(leaf.shape) for leaf in leaves]
        self._is_on = [0 not in leaf.shape and _is_normalised(leaf, config) for leaf in leaves]
        for index, leaf in enumerate(leaves):
            if self._is_on[index]:
                is_shared = leaf.dtype.kind != "f" and len(leaf.shape) > 1
                shape = () if is_shared else leaf.shape
                self.register_buffer(f"mean_{index}", torch.zeros(shape))
                self.register_buffer(f"variance_{index}", torch.ones(shape))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, obs: Nest) -> Nest:
        index = iter(range(len(self._paths)))
        return nests.map(lambda leaf: self._scaled(leaf, next(index)), obs)

    def _scaled(self, leaf: torch.Tensor, index: int) -> Any:
        if not self._is_on[index]:
            return leaf
        mean, variance = getattr(self, f"mean_{index}"), getattr(self, f"variance_{index}")
        return (leaf - mean).mul_(torch.rsqrt(variance + _EPS)).clamp_(-_CLIP, _CLIP)

    def scaled_numpy(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """What `forward` gives for one float leaf on the CPU, in NumPy."""
        mean, variance = self.mean_0.numpy(), self.variance_0.numpy()
        scaled: NDArray[np.float32] = (obs - mean) * (np.float32(1.0) / np.sqrt(variance + np.float32(_EPS)))
        return np.clip(scaled, -_CLIP, _CLIP, out=scaled)

    @torch.no_grad()
    def update(self, obs: Nest, reduce: Any = None) -> None:
        """Take in observations `[..., leaf]`: the parallel variance of Chan et al. `reduce` sums over trainer ranks."""
        if not any(self._is_on):
            return
        leaves = nests.leaves(obs)
        rows = float(leaves[0].shape[: leaves[0].dim() - self._num_axes[0]].numel())
        for index, leaf in enumerate(leaves):
            if not self._is_on[index]:
                continue
            mean, variance = getattr(self, f"mean_{index}"), getattr(self, f"variance_{index}")
            flat = leaf.reshape(-1, *mean.shape).double()
            share = rows / flat.shape[0]  # of a row in what is summed: less than 1 where entries share a mean
            sums = torch.stack(
                [flat.sum(0) * share, (flat * flat).sum(0) * share, torch.full_like(mean, rows, dtype=torch.float64)]
            )
            if reduce is not None:
                reduce(sums)
            total = sums[2]
            new_mean = sums[0] / total
            new_variance = sums[1] / total - new_mean * new_mean
            old, both = self.count, self.count + total
            delta = new_mean - mean
            merged = (variance * old + new_variance * total + delta * delta * old * total / both) / both
            mean += (delta * total / both).float()
            variance.copy_(merged.clamp_min(0.0).float())
            joined = float(total.flatten()[0])
        self.count += joined


def _is_normalised(leaf: ArraySpec, config: NetworkConfig) -> bool:
    """A user's model is given integers as they are: it may look something up by them."""
    return leaf.dtype.kind == "f" or (config.model is None and has_no_scale(leaf, config))
