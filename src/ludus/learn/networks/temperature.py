"""The temperature of SAC: what entropy is worth, learnt as its logarithm."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["Temperature"]


class Temperature(nn.Module):
    """`forward() -> alpha`, a tensor without axes."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(math.log(initial)))

    def forward(self) -> torch.Tensor:
        return self.log_alpha.exp()
