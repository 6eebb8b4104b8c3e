"""Sequences from replay: networks run along them, and what is learnt from them is a mean over steps that count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ludus.data import nest as nests
from ludus.data.nest import Nest

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.data.segment import Segment
    from ludus.learn.algorithms.replay_algorithm import ReplayView

__all__ = ["episode_starts", "mean", "priority", "unroll"]


def unroll(model: Any, obs: Nest, state: Nest, first: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Outputs `[T + 1 - start, B, ...]` and values from the step `start` on; those before it carry no gradients."""
    import torch  # here, because settings are shown without it

    if start:
        with torch.no_grad():
            state = model(nests.map(lambda leaf: leaf[:start], obs), state, first[:start])[2]
    outputs, value, _ = model(nests.map(lambda leaf: leaf[start:], obs), state, first[start:])
    return outputs, value


def episode_starts(segment: Segment) -> Tensor:
    """`first`; also after the last episode of a sequence that is filled up, where nothing else says that it is over."""
    first: Tensor = segment.first.clone()
    first[2:] |= (segment.terminated | segment.truncated)[:-1]
    return first


def mean(x: Tensor, active: Tensor, view: ReplayView) -> Tensor:
    """Over active steps, by the importance of their rows; this rank's share of it."""
    weight = active if view.weight is None else active * view.weight
    return (x * weight).sum() / active.sum().clamp(min=1.0) * view.share


def priority(error: Tensor, active: Tensor, eta: float) -> Tensor:
    """Of each sequence: `eta` of its largest error, the rest of the mean."""
    size = error.abs() * active
    average = size.sum(0) / active.sum(0).clamp(min=1.0)
    return eta * size.amax(0) + (1.0 - eta) * average
