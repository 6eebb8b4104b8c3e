"""Target networks: copies that follow a network slowly. https://arxiv.org/abs/1509.02971"""

from __future__ import annotations

import weakref

import torch
from torch import nn

__all__ = ["follow"]

_Pairs = list[tuple[torch.Tensor, torch.Tensor]]

# Of each target: whom it follows, its floats with theirs, and the other buffers. A walk over modules costs more than
# the arithmetic of a small network.
_FOUND: weakref.WeakKeyDictionary[nn.Module, tuple[weakref.ref[nn.Module], _Pairs, _Pairs]] = (
    weakref.WeakKeyDictionary()
)


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Move the target's parameters and buffers by the fraction `tau` of the way to the source's; 1: copy them.

    The tensors of both must be the same from call to call; what is in them, and where it lies, may change.
    """
    followed, floats, others = _FOUND.get(target) or _find(target, source)
    if followed() is not source:
        _, floats, others = _find(target, source)
    if tau < 1.0:
        torch._foreach_lerp_([ours for ours, _ in floats], [theirs for _, theirs in floats], tau)
    else:
        others = floats + others
    for ours, theirs in others:
        ours.copy_(theirs)


def _find(target: nn.Module, source: nn.Module) -> tuple[weakref.ref[nn.Module], _Pairs, _Pairs]:
    ours, theirs = target.state_dict(keep_vars=True), source.state_dict(keep_vars=True)
    pairs = [(tensor, theirs[name]) for name, tensor in ours.items()]
    floats = [pair for pair in pairs if pair[0].is_floating_point()]
    found = (weakref.ref(source), floats, [pair for pair in pairs if not pair[0].is_floating_point()])
    _FOUND[target] = found
    return found
