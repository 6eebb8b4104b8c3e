"""Target networks: copies that follow a network slowly. https://arxiv.org/abs/1509.02971"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["follow"]


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Move the target's parameters and buffers by the fraction `tau` of the way to the source's; 1: copy them."""
    ours, theirs = target.state_dict(), source.state_dict()
    floats = [name for name, tensor in ours.items() if tensor.is_floating_point()]
    if tau < 1.0:
        torch._foreach_lerp_([ours[name] for name in floats], [theirs[name] for name in floats], tau)
    for name in ours.keys() - (floats if tau < 1.0 else []):
        ours[name].copy_(theirs[name])
