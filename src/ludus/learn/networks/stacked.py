"""MLPs of one shape, stacked and computed as one: a single one, or the critics of an ensemble.

As in `twin.py`, the backward pass is written out: at these sizes a node of torch's graph costs as much as its
arithmetic. Here gradients also reach the inputs, where these need them: an actor learns through its critics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from ludus.learn.ops.products import dense, multiply

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
        sizes = list(zip((num_inputs, *hidden), hidden, strict=False))
        # The last layer's are [outputs, inputs], unlike the others: few rows multiply far faster than few columns.
        last_weight = torch.empty(num_towers, num_outputs, (num_inputs, *hidden)[-1])
        last_bias = torch.zeros(num_towers, num_outputs, 1)
        self.weights = nn.ParameterList([*(torch.empty(num_towers, a, b) for a, b in sizes), last_weight])
        self.biases = nn.ParameterList([*(torch.zeros(num_towers, 1, b) for _, b in sizes), last_bias])
        with torch.no_grad():
            for tower in range(num_towers):
                for number, weight in enumerate(self.weights):
                    nn.init.orthogonal_(weight[tower], math.sqrt(2.0) if number < len(hidden) else gain)

    def forward(self, x: torch.Tensor, *, is_frozen: bool = False, num_towers: int | None = None) -> torch.Tensor:
        """`is_frozen`: gradients go to `x` alone, which costs half as much, and less where rows have none.

        `num_towers`: the first of them only.
        """
        parameters = (*self.weights, *self.biases)
        if num_towers is not None:
            parameters = tuple(parameter[:num_towers] for parameter in parameters)
        if torch.is_autocast_enabled(x.device.type):
            with torch.autocast(x.device.type, enabled=False):  # too small to gain from half precision
                return self._run(x.float(), parameters, is_frozen)
        return self._run(x, parameters, is_frozen)

    def _run(self, x: torch.Tensor, parameters: tuple[Any, ...], is_frozen: bool) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return _forward(x, self.activation, parameters)[0]
        if is_frozen:
            parameters = tuple(parameter.detach() for parameter in parameters)
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
        outputs = self.tower(obs).squeeze(0)
        return outputs, outputs.new_zeros(()).expand(len(outputs))

    def place(self) -> int:
        """Where the parameters are now; it changes when a learner moves them."""
        return int(self.tower.weights[0].data_ptr())

    def layers(self) -> list[list[tuple[NDArray[Any], NDArray[Any]]]]:
        """Weight `[inputs, outputs]` and bias of each layer: arrays that share the parameters' memory."""
        *layers, last = zip(self.tower.weights, self.tower.biases, strict=True)
        hidden = [(weight.detach().numpy()[0], bias.detach().numpy()[0, 0]) for weight, bias in layers]
        return [[*hidden, (last[0].detach().numpy()[0].T, last[1].detach().numpy()[0, :, 0])]]


class _Stack(torch.autograd.Function):
    """Forward and backward of all towers."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, activation: str, *parameters: torch.Tensor) -> torch.Tensor:
        outputs, kept = _forward(x, activation, parameters)
        context.activation, context.input_shape = activation, x.shape
        context.save_for_backward(*parameters[: len(parameters) // 2], *(h for tower in kept for h in tower))
        return outputs

    @staticmethod
    def backward(context: Any, of_outputs: torch.Tensor) -> tuple[Any, ...]:
        num_layers = len(context.needs_input_grad[2:]) // 2
        weights, flat = context.saved_tensors[:num_layers], context.saved_tensors[num_layers:]
        kept = [flat[start : start + num_layers] for start in range(0, len(flat), num_layers)]
        needs_x, needs_weights = context.needs_input_grad[0], context.needs_input_grad[2]
        of_inputs: list[Any] = []
        of_parameters: list[list[torch.Tensor]] = []
        for tower, gradient in enumerate(of_outputs):
            of_tower = [weight[tower] for weight in weights]
            if needs_weights:
                of_x, gradients = _backward(gradient, context.activation, of_tower, kept[tower], needs_x)
                of_parameters.append(gradients)
            else:
                of_x = _frozen(gradient, context.activation, of_tower, kept[tower])
            of_inputs.append(of_x)
        of_x = None
        if needs_x and len(of_inputs) == 1:
            of_x = of_inputs[0].view(context.input_shape)
        elif needs_x:
            of_x = torch.stack(of_inputs)
            of_x = of_x.sum(0) if len(context.input_shape) == 2 else of_x
        if not needs_weights:
            return of_x, None, *([None] * (2 * num_layers))
        stacked = [
            each[0].unsqueeze(0) if len(each) == 1 else torch.stack(each) for each in zip(*of_parameters, strict=True)
        ]
        return of_x, None, *stacked


def _forward(
    x: torch.Tensor, activation: str, parameters: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, list[list[torch.Tensor]]]:
    """Outputs `[K, N, num_outputs]`, and the inputs of all layers, by tower."""
    *weights, last_weight = parameters[: len(parameters) // 2]
    *biases, last_bias = parameters[len(parameters) // 2 :]
    outputs, kept = [], []
    for tower in range(len(last_weight)):
        h = x if x.dim() == 2 else x[tower]
        inputs = [h]
        for weight, bias in zip(weights, biases, strict=True):
            h = dense(h, weight[tower], bias[tower, 0], activation)
            inputs.append(h)
        kept.append(inputs)
        outputs.append(torch.addmm(last_bias[tower], last_weight[tower], h.t()).t())
    return outputs[0].unsqueeze(0) if len(outputs) == 1 else torch.stack(outputs), kept


def _deactivate(gradient: torch.Tensor, outputs: torch.Tensor, activation: str) -> torch.Tensor:
    if activation == "relu":
        return torch.ops.aten.threshold_backward.grad_input(gradient, outputs, 0.0, grad_input=gradient)
    return torch.ops.aten.tanh_backward(gradient, outputs)


def _backward(
    gradient: torch.Tensor,
    activation: str,
    weights: Sequence[torch.Tensor],
    kept: Sequence[torch.Tensor],
    needs_x: bool,
) -> tuple[Any, list[torch.Tensor]]:
    """Of one tower: the gradient of the input, if it is needed, and those of the parameters in their order."""
    of_weights = [gradient.t().mm(kept[-1])]
    of_biases = [gradient.sum(0).unsqueeze(-1)]
    number = len(weights) - 1
    if number or needs_x:
        gradient = gradient.mm(weights[-1])
    while number:
        gradient = _deactivate(gradient, kept[number], activation)
        number -= 1
        of_weights.append(multiply(kept[number].t(), gradient))
        of_biases.append(gradient.sum(0, keepdim=True))
        if number or needs_x:
            gradient = multiply(gradient, weights[number].t())
    return (gradient if needs_x else None), [*reversed(of_weights), *reversed(of_biases)]


def _frozen(
    gradient: torch.Tensor, activation: str, weights: Sequence[torch.Tensor], kept: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Of one tower: the gradient of its inputs alone.

    Where a loss takes the least of several critics, each of them has gradients in a part of the rows only: the others
    are left out.
    """
    num_rows = len(gradient)
    rows = (gradient != 0.0).any(-1).nonzero().squeeze(-1)
    is_part = len(rows) < num_rows
    gradient = (gradient[rows] if is_part else gradient).mm(weights[-1])
    for number in reversed(range(len(weights) - 1)):
        h = kept[number + 1]
        gradient = _deactivate(gradient, h.index_select(0, rows) if is_part else h, activation)
        gradient = multiply(gradient, weights[number].t())
    return gradient.new_zeros(num_rows, gradient.shape[1]).index_copy_(0, rows, gradient) if is_part else gradient
