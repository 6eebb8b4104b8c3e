"""Dense layers, and how the weights of every network begin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ludus.learn.networks.tanh import tanh

__all__ = ["HIDDEN_GAIN", "MLP", "POLICY_GAIN", "VALUE_GAIN", "dense", "orthogonal"]

HIDDEN_GAIN = math.sqrt(2.0)
POLICY_GAIN = 0.01  # the first actions are all but uniform
VALUE_GAIN = 1.0


def orthogonal(layer: Any, gain: float = HIDDEN_GAIN) -> Any:
    """The layer, started with orthogonal weights and no bias: https://arxiv.org/abs/1312.6120"""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def dense(num_inputs: int, num_outputs: int, gain: float = HIDDEN_GAIN) -> Any:
    return orthogonal(nn.Linear(num_inputs, num_outputs), gain)


class MLP(nn.Module):
    """`forward(x [N, num_inputs]) -> [N, num_features]`: hidden layers, each with its activation. None will do, too."""

    def __init__(self, num_inputs: int, hidden: Sequence[int], activation: str = "tanh") -> None:
        super().__init__()
        sizes = [num_inputs, *hidden]
        self.num_features = sizes[-1]
        self.layers = nn.ModuleList([dense(*pair) for pair in zip(sizes, hidden, strict=False)])
        self._activate = tanh if activation == "tanh" else torch.relu

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = self._activate(layer(x))
        return x
