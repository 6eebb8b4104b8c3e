"""Two MLPs side by side, one for the policy and one for the value, computed as one.

Their weights lie stacked in one tensor per layer, so that a layer of both is one multiplication: half the calls into
torch, which at these sizes cost as much as the arithmetic.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from ludus.learn.networks.tanh import tanh

__all__ = ["TwinMLP"]


class TwinMLP(nn.Module):
    """`forward(obs [N, obs_size]) -> (outputs [N, num_outputs], value [N])`."""

    def __init__(self, obs_size: int, num_outputs: int, hidden: tuple[int, ...], activation: str = "tanh") -> None:
        super().__init__()
        self.hidden = hidden
        self.activation = activation
        first, *rest = hidden
        self.weight_in = nn.Parameter(torch.empty(obs_size, 2 * first))  # policy's columns, then the value's
        self.bias_in = nn.Parameter(torch.zeros(2 * first))
        sizes = list(zip(hidden, rest, strict=False))
        self.weights = nn.ParameterList([nn.Parameter(torch.empty(2, a, b)) for a, b in sizes])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(2, 1, b)) for _, b in sizes])
        self.policy_weight = nn.Parameter(torch.empty(hidden[-1], num_outputs))
        self.policy_bias = nn.Parameter(torch.zeros(num_outputs))
        self.value_weight = nn.Parameter(torch.empty(hidden[-1], 1))
        self.value_bias = nn.Parameter(torch.zeros(1))
        self._activate = tanh if activation == "tanh" else torch.relu
        self._initialise()

    def _initialise(self) -> None:
        first, gain = self.hidden[0], math.sqrt(2.0)
        with torch.no_grad():
            for tower in range(2):
                nn.init.orthogonal_(self.weight_in[:, tower * first : (tower + 1) * first], gain)
                for weight in self.weights:
                    nn.init.orthogonal_(weight[tower], gain)
            nn.init.orthogonal_(self.policy_weight, 0.01)
            nn.init.orthogonal_(self.value_weight, 1.0)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        num_rows = obs.shape[0]
        h = self._activate(torch.addmm(self.bias_in, obs, self.weight_in))
        h = h.view(num_rows, 2, self.hidden[0]).transpose(0, 1)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            h = self._activate(torch.baddbmm(bias, h, weight))
        of_policy, of_value = h.unbind(0)
        outputs = torch.addmm(self.policy_bias, of_policy, self.policy_weight)
        return outputs, torch.addmm(self.value_bias, of_value, self.value_weight).view(num_rows)
