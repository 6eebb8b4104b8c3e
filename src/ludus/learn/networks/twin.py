"""Two MLPs side by side, one for the policy and one for the value, computed as one.

Their weights lie stacked in one tensor per layer, so that a layer of both is one multiplication, and the backward pass
is written out: at these sizes a call into torch, and a node of its graph, cost as much as the arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

__all__ = ["TwinMLP"]


class TwinMLP(nn.Module):
    """`forward(obs [N, obs_size]) -> (outputs [N, num_outputs], value [N])`. Tower 0 is the policy's, 1 the value's."""

    def __init__(self, obs_size: int, num_outputs: int, hidden: tuple[int, ...], activation: str = "tanh") -> None:
        super().__init__()
        self.hidden = hidden
        self.activation = activation
        sizes = list(zip((obs_size, *hidden), hidden, strict=False))
        self.weights = nn.ParameterList([nn.Parameter(torch.empty(2, a, b)) for a, b in sizes])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(2, 1, b)) for _, b in sizes])
        self.policy_weight = nn.Parameter(torch.empty(num_outputs, hidden[-1]))  # so: few rows multiply far faster
        self.policy_bias = nn.Parameter(torch.zeros(num_outputs))
        self.value_weight = nn.Parameter(torch.empty(hidden[-1], 1))
        self.value_bias = nn.Parameter(torch.zeros(1))
        with torch.no_grad():
            for weight in self.weights:
                for tower in range(2):
                    nn.init.orthogonal_(weight[tower], math.sqrt(2.0))
            nn.init.orthogonal_(self.policy_weight, 0.01)
            nn.init.orthogonal_(self.value_weight, 1.0)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        towers = _SigmoidTowers if self.activation == "tanh" else _ReluTowers
        heads = (self.policy_weight, self.policy_bias, self.value_weight, self.value_bias)
        layers = (*self.weights, *self.biases)
        if not torch.is_autocast_enabled(obs.device.type):
            outputs, value = towers.apply(obs, *heads, *layers)
            return outputs, value
        with torch.autocast(obs.device.type, enabled=False):  # too small to gain from half precision
            outputs, value = towers.apply(obs, *heads, *layers)
            return outputs, value

    @torch.no_grad()
    def rescale_value(self, scale: float, shift: float) -> None:
        """Values become `scale * value + shift`."""
        self.value_weight.mul_(scale)
        self.value_bias.mul_(scale).add_(shift)

    def towers(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Parameters of both towers along their first axis, and those of the value alone."""
        return [*self.weights, *self.biases], [self.value_weight, self.value_bias]

    def place(self) -> int:
        """Where the parameters are now; it changes when a learner moves them."""
        return int(self.policy_weight.data_ptr())

    def layers(self) -> list[list[tuple[NDArray[Any], NDArray[Any]]]]:
        """Weight `[inputs, outputs]` and bias of each layer of each tower: arrays that share the parameters' memory."""
        heads = [
            (self.policy_weight.detach().numpy().T, self.policy_bias.detach().numpy()),
            (self.value_weight.detach().numpy(), self.value_bias.detach().numpy()),
        ]
        pairs = [
            (weight.detach().numpy(), bias.detach().numpy())
            for weight, bias in zip(self.weights, self.biases, strict=True)
        ]
        return [[*((weight[tower], bias[tower]) for weight, bias in pairs), head] for tower, head in enumerate(heads)]

    @torch.no_grad()
    def values_only(self, obs: torch.Tensor) -> torch.Tensor:
        """The value alone, without gradients: half the work."""
        with torch.autocast(obs.device.type, enabled=False):
            h = obs
            for weight, bias in zip(self.weights, self.biases, strict=True):
                h = _activate_(torch.addmm(bias[1, 0], h, weight[1]), self.activation)
            return torch.addmm(self.value_bias, h, self.value_weight).view(obs.shape[0])


def _activate_(h: torch.Tensor, activation: str) -> torch.Tensor:
    return h.relu_() if activation == "relu" else h.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


class _ReluTowers(torch.autograd.Function):
    """Forward and backward of both towers. No gradient goes to the observations: nothing that learns is before them."""

    @staticmethod
    def forward(context: Any, obs: torch.Tensor, *parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        policy_weight, policy_bias, value_weight, value_bias, *layers = parameters
        weights, biases = layers[: len(layers) // 2], layers[len(layers) // 2 :]
        hidden = [obs.expand(2, *obs.shape)]
        for weight, bias in zip(weights, biases, strict=True):
            hidden.append(torch.baddbmm(bias, hidden[-1], weight).relu_())
        context.save_for_backward(policy_weight, value_weight, *weights, *hidden)
        outputs = torch.addmm(policy_bias.unsqueeze(1), policy_weight, hidden[-1][0].t()).t()
        return outputs, torch.addmm(value_bias, hidden[-1][1], value_weight).view(obs.shape[0])

    @staticmethod
    def backward(context: Any, of_outputs: torch.Tensor, of_value: torch.Tensor) -> tuple[Any, ...]:
        policy_weight, value_weight, *saved = context.saved_tensors
        weights, hidden = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        of_value = of_value.unsqueeze(1)
        top = hidden[-1]
        heads = (of_outputs.t().mm(top[0]), of_outputs.sum(0), top[1].t().mm(of_value), of_value.sum(0))
        gradient = _below_heads(top, of_outputs, policy_weight, of_value, value_weight)
        of_weights, of_biases = [], []
        for number in reversed(range(len(weights))):
            gradient = gradient * (hidden[number + 1] > 0)
            of_weights.append(hidden[number].transpose(1, 2).bmm(gradient))
            of_biases.append(gradient.sum(1, keepdim=True))
            if number:
                gradient = gradient.bmm(weights[number].transpose(1, 2))
        return (None, *heads, *reversed(of_weights), *reversed(of_biases))


class _SigmoidTowers(torch.autograd.Function):
    """tanh towers by sigmoids, which torch has three times as fast on CPUs: tanh(x) = 2 s - 1 with s = sigmoid(2x).

    Twos and ones go into the small matrices: with weights W and bias b the next layer of tanh(x) has the input
    2 (tanh(x) W + b) = s (4 W) + 2 (b - 1 W), so that s alone is computed and kept for each row. The two agree to 2e-7.
    """

    @staticmethod
    def forward(context: Any, obs: torch.Tensor, *parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        policy_weight, policy_bias, value_weight, value_bias, *layers = parameters
        weights, biases = layers[: len(layers) // 2], layers[len(layers) // 2 :]
        inputs = obs.expand(2, *obs.shape)
        kept = [inputs, torch.baddbmm(biases[0] * 2.0, inputs, weights[0] * 2.0).sigmoid_()]
        for weight, bias in zip(weights[1:], biases[1:], strict=True):
            shifted = (bias - weight.sum(1, keepdim=True)).mul_(2.0)
            kept.append(torch.baddbmm(shifted, kept[-1], weight * 4.0).sigmoid_())
        context.save_for_backward(policy_weight, value_weight, *weights, *kept)
        top = kept[-1]
        shifted = (policy_bias - policy_weight.sum(1)).unsqueeze(1)
        outputs = torch.addmm(shifted, policy_weight, top[0].t(), alpha=2.0).t()
        value = torch.addmm(value_bias - value_weight.sum(0), top[1], value_weight, alpha=2.0)
        return outputs, value.view(obs.shape[0])

    @staticmethod
    def backward(context: Any, of_outputs: torch.Tensor, of_value: torch.Tensor) -> tuple[Any, ...]:
        policy_weight, value_weight, *saved = context.saved_tensors
        weights, kept = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        of_value = of_value.unsqueeze(1)
        top = kept[-1]
        of_policy_bias, of_value_bias = of_outputs.sum(0), of_value.sum(0)
        heads = (
            of_outputs.t().mm(top[0]).mul_(2.0).sub_(of_policy_bias.unsqueeze(1)),
            of_policy_bias,
            top[1].t().mm(of_value).mul_(2.0).sub_(of_value_bias),
            of_value_bias,
        )
        gradient = _below_heads(top, of_outputs, policy_weight, of_value, value_weight)
        of_weights, of_biases = [], []
        for number in reversed(range(len(weights))):
            # d tanh(x) / dx = 4 s (1 - s); the 4 waits for the small matrices
            gradient = torch.ops.aten.sigmoid_backward(gradient, kept[number + 1])
            of_bias = gradient.sum(1, keepdim=True).mul_(4.0)
            of_weight = kept[number].transpose(1, 2).bmm(gradient)
            of_weights.append(of_weight.mul_(8.0).sub_(of_bias) if number else of_weight.mul_(4.0))
            of_biases.append(of_bias)
            if number:
                gradient = gradient.bmm((weights[number] * 4.0).transpose(1, 2))
        return (None, *heads, *reversed(of_weights), *reversed(of_biases))


def _below_heads(
    top: torch.Tensor,
    of_outputs: torch.Tensor,
    policy_weight: torch.Tensor,
    of_value: torch.Tensor,
    value_weight: torch.Tensor,
) -> torch.Tensor:
    """The gradient that the two heads hand down to their towers."""
    gradient = torch.empty_like(top)
    torch.mm(of_outputs, policy_weight, out=gradient[0])
    torch.mm(of_value, value_weight.t(), out=gradient[1])
    return gradient
