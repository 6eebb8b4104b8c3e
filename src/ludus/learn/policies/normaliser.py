"""Observations brought to mean 0 and deviation 1 by what was seen so far; part of the policy's weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludus.data import nest as nests
from ludus.data.nest import Nest

__all__ = ["Normaliser"]

_CLIP = 10.0
_EPS = 1e-8


class Normaliser(nn.Module):
    """Counts, means and squared deviations of every float leaf; integer leaves (images, choices) pass unchanged.

    So do leaves without a number; where there is nothing else, nothing is done.
    """

    def __init__(self, obs: Nest) -> None:
        super().__init__()
        self._paths = nests.paths(obs)
        self._is_float = [leaf.dtype.kind == "f" and 0 not in leaf.shape for leaf in nests.leaves(obs)]
        for index, leaf in enumerate(nests.leaves(obs)):
            if self._is_float[index]:
                self.register_buffer(f"mean_{index}", torch.zeros(leaf.shape))
                self.register_buffer(f"variance_{index}", torch.ones(leaf.shape))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, obs: Nest) -> Nest:
        index = iter(range(len(self._paths)))
        return nests.map(lambda leaf: self._scaled(leaf, next(index)), obs)

    def _scaled(self, leaf: torch.Tensor, index: int) -> Any:
        if not self._is_float[index]:
            return leaf
        mean, variance = getattr(self, f"mean_{index}"), getattr(self, f"variance_{index}")
        return ((leaf - mean) * torch.rsqrt(variance + _EPS)).clamp(-_CLIP, _CLIP)

    def scaled_numpy(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """What `forward` gives for one float leaf on the CPU, in NumPy."""
        mean, variance = self.mean_0.numpy(), self.variance_0.numpy()
        scaled: NDArray[np.float32] = (obs - mean) * (np.float32(1.0) / np.sqrt(variance + np.float32(_EPS)))
        return np.clip(scaled, -_CLIP, _CLIP, out=scaled)

    @torch.no_grad()
    def update(self, obs: Nest, reduce: Any = None) -> None:
        """Take in observations `[..., leaf]`: the parallel variance of Chan et al. `reduce` sums over trainer ranks."""
        if not any(self._is_float):
            return
        leaves = nests.leaves(obs)
        num_axes = next(
            leaf.dim() - getattr(self, f"mean_{index}").dim()
            for index, leaf in enumerate(leaves)
            if self._is_float[index]
        )
        rows = float(torch.tensor(leaves[0].shape[:num_axes]).prod())
        for index, leaf in enumerate(leaves):
            if not self._is_float[index]:
                continue
            mean, variance = getattr(self, f"mean_{index}"), getattr(self, f"variance_{index}")
            flat = leaf.reshape(-1, *mean.shape).double()
            sums = torch.stack([flat.sum(0), (flat * flat).sum(0), torch.full_like(mean, rows, dtype=torch.float64)])
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
