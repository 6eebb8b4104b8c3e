"""Two MLPs side by side, one for the policy and one for the value, computed as one.

Their weights lie stacked in one tensor per layer, so that a layer of both is one multiplication, and the backward pass
is written out: at these sizes a call into torch, and a node of its graph, cost as much as the arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

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
        heads = (self.policy_weight, self.policy_bias, self.value_weight, self.value_bias)
        layers = (
            self.weight_in,
            self.bias_in,
            *(p for pair in zip(self.weights, self.biases, strict=True) for p in pair),
        )
        if not torch.is_autocast_enabled(obs.device.type):
            outputs, value = _Towers.apply(self.activation, obs, *heads, *layers)
            return outputs, value
        with torch.autocast(obs.device.type, enabled=False):  # too small to gain from half precision
            outputs, value = _Towers.apply(self.activation, obs, *heads, *layers)
            return outputs, value


class _Towers(torch.autograd.Function):
    """The forward and backward pass. No gradient goes to the observations: nothing that learns is before them."""

    @staticmethod
    def forward(
        context: Any,
        activation: str,
        obs: torch.Tensor,
        policy_weight: torch.Tensor,
        policy_bias: torch.Tensor,
        value_weight: torch.Tensor,
        value_bias: torch.Tensor,
        weight_in: torch.Tensor,
        bias_in: torch.Tensor,
        *layers: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        num_rows = obs.shape[0]
        joined = _activate_(torch.addmm(bias_in, obs, weight_in), activation)
        h = joined.view(num_rows, 2, -1).transpose(0, 1)
        hidden = [h]
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            h = _activate_(torch.baddbmm(bias, h, weight), activation)
            hidden.append(h)
        context.activation = activation
        context.save_for_backward(obs, policy_weight, value_weight, *layers[::2], *hidden)
        outputs = torch.addmm(policy_bias, h[0], policy_weight)
        return outputs, torch.addmm(value_bias, h[1], value_weight).view(num_rows)

    @staticmethod
    def backward(context: Any, of_outputs: torch.Tensor, of_value: torch.Tensor) -> tuple[Any, ...]:
        obs, policy_weight, value_weight, *saved = context.saved_tensors
        num_layers = len(saved) // 2
        weights, hidden = saved[:num_layers], saved[num_layers:]
        of_value = of_value.unsqueeze(1)
        top = hidden[-1]
        heads = (top[0].t().mm(of_outputs), of_outputs.sum(0), top[1].t().mm(of_value), of_value.sum(0))
        gradient = torch.empty(top.shape) if top.device.type == "cpu" else torch.empty_like(top)
        torch.mm(of_outputs, policy_weight.t(), out=gradient[0])
        torch.mm(of_value, value_weight.t(), out=gradient[1])
        layers: list[torch.Tensor] = []
        for weight, above, below in zip(reversed(weights), reversed(hidden[1:]), reversed(hidden[:-1]), strict=True):
            gradient = _through(gradient, above, context.activation)
            layers[:0] = (below.transpose(1, 2).bmm(gradient), gradient.sum(1, keepdim=True))
            gradient = gradient.bmm(weight.transpose(1, 2))
        gradient = _through(gradient, hidden[0], context.activation)
        joined = gradient.transpose(0, 1).reshape(obs.shape[0], -1)
        return (None, None, *heads, obs.t().mm(joined), joined.sum(0), *layers)


def _activate_(h: torch.Tensor, activation: str) -> torch.Tensor:
    """In place. tanh(x) = 2 sigmoid(2x) - 1: torch's sigmoid is three times as fast on CPUs; they agree to 2e-7."""
    if activation == "relu":
        return h.relu_()
    if h.device.type != "cpu":
        return h.tanh_()
    return h.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


def _through(gradient: torch.Tensor, h: torch.Tensor, activation: str) -> torch.Tensor:
    """The gradient before an activation, from that after it and from its result."""
    if activation == "relu":
        return gradient * (h > 0)
    return torch.ops.aten.tanh_backward(gradient, h)
