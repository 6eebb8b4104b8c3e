"""Advantages brought to mean 0 and deviation 1 over all that is learnt from at once, on however many ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["normalise"]


def normalise(x: Tensor, active: Tensor, reduce: Any = None) -> Tensor:
    """`x` scaled by the mean and deviation of its active entries; the others become 0."""
    weight = active.to(x.dtype)
    if reduce is None:
        count = weight.sum().clamp(min=1.0)
        mean = (x * weight).sum() / count
        centred = (x - mean) * weight
        return centred / (((centred * centred).sum() / (count - 1.0).clamp(min=1.0)).sqrt() + 1e-8)
    sums = x.new_empty(2)
    sums[0], sums[1] = weight.sum(), (x * weight).sum()
    reduce(sums)
    count = sums[0].clamp(min=1.0)
    mean = sums[1] / count
    centred = (x - mean) * weight
    square = (centred * centred).sum()
    reduce(square)
    return centred / ((square / (count - 1.0).clamp(min=1.0)).sqrt() + 1e-8)
