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
        self.weights = nn.ParameterList([nn.Parameter(torch.empty(num_towers, a, b)) for a, b in sizes])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(num_towers, 1, b)) for _, b in sizes])
        # [outputs, inputs], unlike the others: few rows multiply far faster than few columns.
        self.last_weight = nn.Parameter(torch.empty(num_towers, num_outputs, (num_inputs, *hidden)[-1]))
        self.last_bias = nn.Parameter(torch.zeros(num_towers, num_outputs, 1))
        with torch.no_grad():
            for tower in range(num_towers):
                for weight in self.weights:
                    nn.init.orthogonal_(weight[tower], math.sqrt(2.0))
                nn.init.orthogonal_(self.last_weight[tower], gain)

    def forward(self, x: torch.Tensor, *, is_frozen: bool = False, num_towers: int | None = None) -> torch.Tensor:
        """`is_frozen`: gradients go to `x` alone, which costs half as much, and less where rows have none.

        `num_towers`: the first of them only.
        """
        parameters = (self.last_weight, self.last_bias, *self.weights, *self.biases)
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
        return int(self.tower.last_weight.data_ptr())

    def layers(self) -> list[list[tuple[NDArray[Any], NDArray[Any]]]]:
        """Weight `[inputs, outputs]` and bias of each layer: arrays that share the parameters' memory."""
        tower = self.tower
        hidden = [
            (weight.detach().numpy()[0], bias.detach().numpy()[0, 0])
            for weight, bias in zip(tower.weights, tower.biases, strict=True)
        ]
        return [[*hidden, (tower.last_weight.detach().numpy()[0].T, tower.last_bias.detach().numpy()[0, :, 0])]]


def _forward(
    x: torch.Tensor, activation: str, parameters: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Outputs `[K, N, num_outputs]`, and the inputs of all layers: `[N, ...]` of a single tower, else `[K, N, ...]`."""
    last_weight, last_bias, *layers = parameters
    weights, biases = layers[: len(layers) // 2], layers[len(layers) // 2 :]
    is_single = len(last_weight) == 1
    if is_single:
        h = x if x.dim() == 2 else x[0]
    else:
        h = x.expand(len(last_weight), *x.shape) if x.dim() == 2 else x
    kept = [h]
    for weight, bias in zip(weights, biases, strict=True):
        h = torch.addmm(bias[0, 0], h, weight[0]) if is_single else torch.baddbmm(bias, h, weight)
        h = h.relu_() if activation == "relu" else h.tanh_()
        kept.append(h)
    return _last_layer(h, last_weight, last_bias), kept


def _last_layer(h: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    if len(weight) == 1:
        return torch.addmm(bias[0], weight[0], h.t()).t().unsqueeze(0)
    if weight.shape[1] > 1:
        return torch.baddbmm(bias, weight, h.transpose(1, 2)).transpose(1, 2)
    # torch multiplies a stack of matrices by a stack of vectors seven times as slowly as one by one.
    return (
        torch.stack([torch.mv(each, row[0]) for each, row in zip(h, weight, strict=True)])
        .add_(bias[:, 0])
        .unsqueeze(-1)
    )


class _Stack(torch.autograd.Function):
    """Forward and backward of all towers."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, activation: str, *parameters: torch.Tensor) -> torch.Tensor:
        outputs, kept = _forward(x, activation, parameters)
        context.activation, context.input_shape = activation, x.shape
        weights = parameters[2 : 1 + len(parameters) // 2]
        context.save_for_backward(parameters[0], *weights, *kept)
        return outputs

    @staticmethod
    def backward(context: Any, of_outputs: torch.Tensor) -> tuple[Any, ...]:
        last_weight, *saved = context.saved_tensors
        weights, kept = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        needs_x, needs_weights = context.needs_input_grad[0], context.needs_input_grad[2]
        is_flat = len(context.input_shape) == 2
        if not needs_weights:
            of_x = _frozen(of_outputs, context.activation, last_weight, weights, kept)
            of_x = of_x if not is_flat else of_x.sum(0) if len(of_x) > 1 else of_x[0]
            return of_x, None, *([None] * (2 + 2 * len(weights)))
        if len(last_weight) == 1:
            of_x, gradients = _backward_single(of_outputs[0], context.activation, last_weight, weights, kept, needs_x)
            return (None if of_x is None else of_x.view(context.input_shape)), None, *gradients
        of_x, gradients = _backward(of_outputs, context.activation, last_weight, weights, kept, needs_x)
        return (of_x.sum(0) if of_x is not None and is_flat else of_x), None, *gradients


def _deactivate(gradient: torch.Tensor, outputs: torch.Tensor, activation: str) -> torch.Tensor:
    if activation == "relu":
        return torch.ops.aten.threshold_backward.grad_input(gradient, outputs, 0.0, grad_input=gradient)
    return torch.ops.aten.tanh_backward(gradient, outputs)


def _backward_single(
    gradient: torch.Tensor,
    activation: str,
    last_weight: torch.Tensor,
    weights: Sequence[torch.Tensor],
    kept: Sequence[torch.Tensor],
    needs_x: bool,
) -> tuple[Any, list[Any]]:
    """Of the input, if needed, and of the parameters in their order."""
    heads = [gradient.t().mm(kept[-1]).unsqueeze(0), gradient.sum(0).view(1, -1, 1)]
    of_weights: list[Any] = []
    of_biases: list[Any] = []
    if weights or needs_x:
        gradient = gradient.mm(last_weight[0])
    for number in reversed(range(len(weights))):
        gradient = _deactivate(gradient, kept[number + 1], activation)
        of_weights.append(kept[number].t().mm(gradient).unsqueeze(0))
        of_biases.append(gradient.sum(0).view(1, 1, -1))
        if number or needs_x:
            gradient = gradient.mm(weights[number][0].t())
    return (gradient if needs_x else None), [*heads, *reversed(of_weights), *reversed(of_biases)]


def _backward(
    gradient: torch.Tensor,
    activation: str,
    last_weight: torch.Tensor,
    weights: Sequence[torch.Tensor],
    kept: Sequence[torch.Tensor],
    needs_x: bool,
) -> tuple[Any, list[Any]]:
    of_last_bias = gradient.sum(1).unsqueeze(-1)
    if last_weight.shape[1] == 1:
        columns = [torch.mv(h.t(), each[:, 0]) for h, each in zip(kept[-1], gradient, strict=True)]
        of_last_weight = torch.stack(columns).unsqueeze(1)
        gradient = gradient * last_weight
    else:
        of_last_weight = gradient.transpose(1, 2).bmm(kept[-1])
        gradient = gradient.bmm(last_weight)
    of_weights: list[Any] = []
    of_biases: list[Any] = []
    for number in reversed(range(len(weights))):
        gradient = _deactivate(gradient, kept[number + 1], activation)
        of_weights.append(kept[number].transpose(1, 2).bmm(gradient))
        of_biases.append(gradient.sum(1, keepdim=True))
        if number or needs_x:
            gradient = gradient.bmm(weights[number].transpose(1, 2))
    gradients = [of_last_weight, of_last_bias, *reversed(of_weights), *reversed(of_biases)]
    return (gradient if needs_x else None), gradients


def _frozen(
    of_outputs: torch.Tensor,
    activation: str,
    last_weight: torch.Tensor,
    weights: Sequence[torch.Tensor],
    kept: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Of the inputs alone `[K, N, num_inputs]`.

    Where a loss takes the least of several critics, each of them has gradients in a part of the rows only: the others
    are left out.
    """
    num_towers, num_rows = of_outputs.shape[:2]
    has_any = (of_outputs != 0.0).any(-1)
    whole = []
    for tower in range(num_towers):
        rows = has_any[tower].nonzero().squeeze(-1)
        is_part = len(rows) < num_rows
        gradient = of_outputs[tower][rows] if is_part else of_outputs[tower]
        gradient = gradient * last_weight[tower] if gradient.shape[1] == 1 else gradient.mm(last_weight[tower])
        for number in reversed(range(len(weights))):
            h = kept[number + 1] if num_towers == 1 else kept[number + 1][tower]
            gradient = _deactivate(gradient, h.index_select(0, rows) if is_part else h, activation)
            gradient = gradient.mm(weights[number][tower].t())
        if is_part:
            gradient = gradient.new_zeros(num_rows, gradient.shape[1]).index_copy_(0, rows, gradient)
        whole.append(gradient)
    return torch.stack(whole)
