"""Advantages of one scale."""

from __future__ import annotations

from typing import Any

__all__ = ["normalise"]


def normalise(x: Any, active: Any, reduce: Any = None) -> Any:
    """`x` minus the mean, divided by the std, of its entries where `active`; all other entries become 0.

    `reduce` sums a tensor over trainer ranks, in place: mean and std are then those of all ranks' entries.
    """
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
