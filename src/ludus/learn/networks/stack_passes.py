"""Passes through stacked MLPs without torch's graph: what a gradient step on the CPU costs beside its multiplications.

    passes = StackPasses(stack)
    outputs = passes.forward(x)            # [K, num_outputs, N], and what the layers gave is kept
    passes.backward(of_outputs)            # into `.grad` of the parameters, over what was there

All is computed in memory that is kept from step to step. Large matrices are torch's, thin ones NumPy's: each is the
faster one there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.learn.networks.stacked import StackedMLP

__all__ = ["StackMemory", "StackPasses"]

_Array = NDArray[np.float32]
_of_relu = torch.ops.aten.threshold_backward.grad_input
_of_tanh = torch.ops.aten.tanh_backward.grad_input


class StackMemory:
    """Tensors by their use and shape."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[Any, ...], torch.Tensor] = {}

    def tensor(self, use: str, *shape: int) -> torch.Tensor:
        """The same one for the same use and shape; what is in it is of no meaning."""
        return self._tensors.setdefault((use, *shape), torch.empty(shape))


class StackPasses:
    """Of one `StackedMLP` with hidden layers, on the CPU. What is returned is overwritten by the next call."""

    def __init__(self, stack: StackedMLP, memory: StackMemory | None = None) -> None:
        """Stacks with the same `memory` work in the same one: each forward pass ends what the others kept."""
        self._stack = stack
        self._memory = StackMemory() if memory is None else memory
        self._first = stack.weights[0]
        self._num_rows = -1
        self._place = (0, 0)

    def forward(self, *inputs: _Array) -> _Array:
        """`[K, num_outputs, N]` of the inputs `[N, ...]` side by side."""
        self._prepare(len(inputs[0]))
        start = 0
        for each in inputs:
            self._x[:, start : start + each.shape[1]] = each
            start += each.shape[1]
        h = self._inputs
        for weight, bias, layer in zip(self._weights, self._biases, self._hidden, strict=True):
            h = torch.baddbmm(bias, h, weight, out=layer)
            h = h.relu_() if self._is_relu else h.tanh_()
        for weight, top, outputs in zip(self._last_weight, self._tops, self._outputs, strict=True):
            np.matmul(weight, top.T, out=outputs)
        self._outputs += self._last_bias
        return self._outputs

    def backward(self, of_outputs: _Array) -> None:
        """The gradient `[K, num_outputs, N]` of what `forward` gave, into `.grad` of all parameters.

        It takes the place of what the layers gave: there is one backward pass for each forward pass.
        """
        self._find_gradients()
        gradient = self._gradients[-1]
        for tower, (each, top, below) in enumerate(zip(of_outputs, self._tops, gradient, strict=True)):
            np.matmul(each, top, out=self._of_last_weight[tower])
            _below_outputs(each, self._last_weights[tower], below)
        np.add.reduce(of_outputs, axis=2, keepdims=True, out=self._of_last_bias)
        for number in reversed(range(len(self._hidden))):
            layer = self._hidden[number]
            self._deactivate(gradient, layer, layer)
            inputs = self._hidden[number - 1] if number else self._inputs
            torch.bmm(inputs.transpose(1, 2), layer, out=self._of_weights[number])
            torch.sum(layer, 1, keepdim=True, out=self._of_biases[number])
            if number:
                gradient = torch.bmm(layer, self._weights[number].transpose(1, 2), out=self._gradients[number - 1])

    def input_gradient(self, of_outputs: _Array, tower: int, rows: NDArray[np.int64], columns: slice) -> _Array:
        """Of some columns of the inputs, `[rows, columns]`, by some rows of one tower.

        `of_outputs` `[num_outputs, rows]` has those rows only.
        """
        num = len(rows)
        below = self._gradients[-1][tower, :num]
        _below_outputs(of_outputs, self._last_weights[tower], below)
        for number in reversed(range(len(self._hidden))):
            h = self._hidden[number][tower]
            if num < self._num_rows:
                taken = self._taken[number][:num]
                np.take(h.numpy(), rows, axis=0, out=taken.numpy(), mode="clip")
                h = taken
            self._deactivate(below, h, h)
            if number:
                below = torch.mm(h, self._weights[number][tower].t(), out=self._gradients[number - 1][tower, :num])
        result: _Array = h.numpy() @ self._weights[0][tower, columns].numpy().T
        return result

    def _deactivate(self, gradient: torch.Tensor, outputs: torch.Tensor, out: torch.Tensor) -> None:
        if self._is_relu:
            _of_relu(gradient, outputs, 0.0, grad_input=out)
        else:
            _of_tanh(gradient, outputs, grad_input=out)

    # --- memory

    def _prepare(self, num_rows: int) -> None:
        stack = self._stack
        place = self._first.data_ptr()
        if self._place[0] != place:  # a learner moves parameters to memory of its own
            self._place = (place, 0)
            self._is_relu = stack.activation == "relu"
            *self._weights, last_weight = (weight.detach() for weight in stack.weights)
            *self._biases, last_bias = (bias.detach() for bias in stack.biases)
            self._last_weight, self._last_bias = last_weight.numpy(), last_bias.numpy()
            self._last_weights = list(last_weight)
        if num_rows == self._num_rows:
            return
        self._num_rows = num_rows
        num_towers, num_inputs = stack.num_towers, stack.weights[0].shape[1]
        inputs = torch.empty(num_rows, num_inputs)
        self._x: _Array = inputs.numpy()
        self._inputs = inputs.expand(num_towers, num_rows, num_inputs)
        self._hidden = [
            self._memory.tensor(f"layer {n}", num_towers, num_rows, size) for n, size in enumerate(stack.hidden)
        ]
        # Layers of one size need only one: the gradient of each is used up before that of the next is computed.
        self._gradients = [self._memory.tensor("gradient", num_towers, num_rows, size) for size in stack.hidden]
        self._taken = [self._memory.tensor("rows", num_rows, size) for size in stack.hidden]
        self._tops: Sequence[_Array] = list(self._hidden[-1].numpy())
        self._outputs: _Array = np.empty((num_towers, self._last_weight.shape[1], num_rows), np.float32)

    def _find_gradients(self) -> None:
        first: Any = self._first.grad
        if self._place[1] == first.data_ptr():
            return
        self._place = (self._place[0], first.data_ptr())
        of_weights: list[Any] = [weight.grad for weight in self._stack.weights]
        of_biases: list[Any] = [bias.grad for bias in self._stack.biases]
        *self._of_weights, of_last_weight = of_weights
        *self._of_biases, of_last_bias = of_biases
        self._of_last_weight, self._of_last_bias = of_last_weight.numpy(), of_last_bias.numpy()


def _below_outputs(of_outputs: _Array, weight: torch.Tensor, out: torch.Tensor) -> None:
    """The gradient that the last layer of one tower hands down."""
    multiply = torch.mul if len(weight) == 1 else torch.mm
    multiply(torch.from_numpy(of_outputs).t(), weight, out=out)
