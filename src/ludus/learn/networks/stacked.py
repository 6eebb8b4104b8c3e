"""MLPs of one shape, stacked and computed as one: a single one, or the critics of an ensemble.

As in `twin.py`, the backward pass is written out: at these sizes a node of torch's graph costs as much as its
arithmetic. Here gradients also reach the inputs, where these need them: an actor learns through its critics.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

__all__ = ["SingleMLP", "StackedMLP"]


class StackedMLP(nn.Module):
    """`forward(x [N, num_inputs]) -> [K, N, num_outputs]` for K towers; `x` may also be `[K, N, num_inputs]`."""

    def __init__(
        self,
        num_towers: int,
        num_inputs: int,
        num_outputs: int,
        hidden: tuple[int, ...],
        activation: str = "relu",
        *,
        gain: float = 1.0,
    ) -> None:
        """`gain` scales the initial weights of the last layer."""
        super().__init__()
        self.hidden = hidden
        self.activation = activation
        self.num_towers = num_towers
        sizes = list(zip((num_inputs, *hidden), (*hidden, num_outputs), strict=True))
        weights = [torch.empty(num_towers, a, b) for a, b in sizes[:-1]]
        # The last layer's is transposed in memory: to few outputs it multiplies four times as fast.
        weights.append(torch.empty(num_towers, num_outputs, sizes[-1][0]).transpose(1, 2))
        self.weights = nn.ParameterList([nn.Parameter(weight) for weight in weights])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(num_towers, 1, b)) for _, b in sizes])
        with torch.no_grad():
            for number, weight in enumerate(self.weights):
                for tower in range(num_towers):
                    nn.init.orthogonal_(weight[tower], math.sqrt(2.0) if number < len(hidden) else gain)

    def forward(self, x: torch.Tensor, *, is_frozen: bool = False) -> torch.Tensor:
        """`is_frozen`: gradients go to `x` alone, which costs half as much."""
        # Not by iterating over the two lists, which costs as much as a small layer.
        parameters = (*self.weights._parameters.values(), *self.biases._parameters.values())
        if is_frozen:
            parameters = tuple(parameter.detach() for parameter in parameters)
        if not torch.is_autocast_enabled(x.device.type):
            return self._run(x, parameters)
        with torch.autocast(x.device.type, enabled=False):  # too small to gain from half precision
            return self._run(x, parameters)

    def _run(self, x: torch.Tensor, parameters: tuple[torch.Tensor, ...]) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return _forward(x, self.activation, parameters)[0]
        outputs: torch.Tensor = _Stack.apply(x, self.activation, *parameters)
        return outputs


class SingleMLP(nn.Module):
    """`forward(obs [N, obs_size]) -> (outputs [N, num_outputs], value [N])`: one tower; all values are 0."""

    def __init__(self, obs_size: int, num_outputs: int, hidden: tuple[int, ...], activation: str = "tanh") -> None:
        super().__init__()
        self.hidden = hidden
        self.activation = activation
        self.tower = StackedMLP(1, obs_size, num_outputs, hidden, activation, gain=0.01)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.tower(obs)[0]
        return outputs, outputs.new_zeros(()).expand(len(outputs))

    def place(self) -> int:
        """Where the parameters are now; it changes when a learner moves them."""
        return int(self.tower.weights[0].data_ptr())

    def layers(self) -> list[list[tuple[NDArray[Any], NDArray[Any]]]]:
        """Weight `[inputs, outputs]` and bias of each layer: arrays that share the parameters' memory."""
        return [
            [
                (weight.detach().numpy()[0], bias.detach().numpy()[0])
                for weight, bias in zip(self.tower.weights, self.tower.biases, strict=True)
            ]
        ]


def _forward(
    x: torch.Tensor, activation: str, parameters: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """`[K, N, num_outputs]`, and the input of each layer: of a single tower without its axis."""
    num_layers = len(parameters) // 2
    num_towers = len(parameters[0])
    is_single = num_towers == 1
    if is_single:
        h = x if x.dim() == 2 else x[0]
    else:
        h = x.expand(num_towers, *x.shape) if x.dim() == 2 else x
    kept = []
    for number in range(num_layers):
        weight, bias = parameters[number], parameters[num_layers + number]
        kept.append(h)
        h = torch.addmm(bias[0, 0], h, weight[0]) if is_single else torch.baddbmm(bias, h, weight)
        if number < num_layers - 1:
            h = h.relu_() if activation == "relu" else h.tanh_()
    return h.unsqueeze(0) if is_single else h, kept


class _Stack(torch.autograd.Function):
    """Forward and backward of all towers."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, activation: str, *parameters: torch.Tensor) -> torch.Tensor:
        outputs, kept = _forward(x, activation, parameters)
        context.activation, context.input_shape = activation, x.shape
        context.save_for_backward(*parameters[: len(kept)], *kept)
        return outputs

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        saved = context.saved_tensors
        weights, kept = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        is_single = len(weights[0]) == 1
        needs_x, needs_weights = context.needs_input_grad[0], context.needs_input_grad[2]
        if is_single:
            gradient = gradient[0]
        of_weights: list[Any] = []
        of_biases: list[Any] = []
        for number in reversed(range(len(weights))):
            if needs_weights:
                inputs, is_last = kept[number], number == len(weights) - 1
                of_weight = (gradient.mT @ inputs).mT if is_last else inputs.mT @ gradient  # as they lie in memory
                of_weights.append(of_weight.unsqueeze(0) if is_single else of_weight)
                of_biases.append(gradient.sum(-2).view(len(weights[0]), 1, -1))
            if number or needs_x:
                weight = weights[number]
                gradient = gradient.mm(weight[0].t()) if is_single else gradient.bmm(weight.transpose(1, 2))
            if number:
                if context.activation == "relu":
                    gradient = torch.ops.aten.threshold_backward(gradient, kept[number], 0.0)
                else:
                    gradient = torch.ops.aten.tanh_backward(gradient, kept[number])
        of_x = None
        if needs_x:
            of_x = gradient.sum(0) if not is_single and len(context.input_shape) == 2 else gradient
            of_x = of_x.view(context.input_shape)
        if not needs_weights:
            return of_x, None, *([None] * (2 * len(weights)))
        return of_x, None, *reversed(of_weights), *reversed(of_biases)
