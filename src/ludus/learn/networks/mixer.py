"""QMIX's mixing network: from the values of agents to that of their team. https://arxiv.org/abs/1803.11485"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ludus.data.nest import Nest
from ludus.learn.networks.central_critic import TeamReader
from ludus.learn.networks.mlp import dense

__all__ = ["MonotonicMixer"]

_WEIGHT_GAIN = 0.5  # at first a team's value rises about as much as that of an agent
_BIAS_GAIN = 0.01  # ... and is about 0 where theirs are: nothing is to be unlearnt


class MonotonicMixer(nn.Module):
    """`forward(q [N, A], seen) -> [N]`, which never falls where any of `q` rises.

    A hidden layer of `size` units and an output, whose weights and biases are made from what is seen of the env, by
    networks with one hidden layer of `hyper_size` units; the first bias linearly. Weights are made positive.
    """

    def __init__(self, reader: TeamReader, *, num_agents: int, size: int, hyper_size: int) -> None:
        super().__init__()
        self.reader = reader
        self._sizes = (hyper_size, hyper_size, hyper_size, size)
        # One product for the hidden layers of the three networks, and the bias that needs none.
        self.first = dense(reader.num_features, sum(self._sizes))
        self.weight_1 = dense(hyper_size, num_agents * size, _WEIGHT_GAIN)
        self.weight_2 = dense(hyper_size, size, _WEIGHT_GAIN)
        self.bias_2 = dense(hyper_size, 1, _BIAS_GAIN)
        with torch.no_grad():
            self.first.weight[-size:] *= _BIAS_GAIN

    def forward(self, q: Any, seen: Nest) -> Any:
        of_weight_1, of_weight_2, of_bias_2, bias_1 = self.first(self.reader(seen)).split(self._sizes, -1)
        weight_1 = self.weight_1(torch.relu(of_weight_1)).abs().view(*q.shape, -1)
        weight_2 = self.weight_2(torch.relu(of_weight_2)).abs()
        bias_2 = self.bias_2(torch.relu(of_bias_2)).squeeze(-1)
        hidden = F.elu((q.unsqueeze(-1) * weight_1).sum(-2) + bias_1)
        return (hidden * weight_2).sum(-1) + bias_2
