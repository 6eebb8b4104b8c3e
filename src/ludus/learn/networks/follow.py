"""Target networks: copies that follow a network slowly. https://arxiv.org/abs/1509.02971"""

from __future__ import annotations

import weakref
from typing import NamedTuple

import torch
from torch import nn

__all__ = ["follow"]


class _Pairs(NamedTuple):
    """Parameters and buffers of a target and of its source, in the same order: finding them costs more than moving."""

    source: weakref.ref[nn.Module]
    ours: list[torch.Tensor]
    theirs: list[torch.Tensor]
    copied: list[tuple[torch.Tensor, torch.Tensor]]  # not floats


_PAIRS: weakref.WeakKeyDictionary[nn.Module, _Pairs] = weakref.WeakKeyDictionary()


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Move the target's parameters and buffers by the fraction `tau` of the way to the source's; 1: copy them."""
    pairs = _PAIRS.get(target)
    if pairs is None or pairs.source() is not source:
        pairs = _PAIRS[target] = _pairs(target, source)
    if tau < 1.0:
        torch._foreach_lerp_(pairs.ours, pairs.theirs, tau)
    else:
        torch._foreach_copy_(pairs.ours, pairs.theirs)
    for ours, theirs in pairs.copied:
        ours.copy_(theirs)


def _pairs(target: nn.Module, source: nn.Module) -> _Pairs:
    """Parameters themselves, not their memory: an optimiser moves that."""
    found, of_source = target.state_dict(keep_vars=True), source.state_dict(keep_vars=True)
    both = [(tensor, of_source[name]) for name, tensor in found.items()]
    floats = [pair for pair in both if pair[0].is_floating_point()]
    return _Pairs(
        weakref.ref(source),
        [ours for ours, _ in floats],
        [theirs for _, theirs in floats],
        [pair for pair in both if not pair[0].is_floating_point()],
    )
