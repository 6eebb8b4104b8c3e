"""Passes through stacked MLPs without torch's graph: what a gradient step on the CPU costs beside its multiplications.

    passes = StackPasses(stack)
    outputs = passes.forward(x)            # [K, num_outputs, N], and what the layers gave is kept
    passes.backward(of_outputs)            # into `.grad` of the parameters, over what was there

Towers are computed one after the other: batched multiplications are no faster. Large matrices are torch's, thin ones
NumPy's: each is the faster one there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.learn.networks.stacked import StackedMLP
from ludus.learn.ops.products import dense, multiply, multiply_into

__all__ = ["StackMemory", "StackPasses"]

_Array = NDArray[np.float32]
_Tensors = list[list[torch.Tensor]]  # by layer and tower
_ROWS_STEP = 32  # a product of a new size costs oneDNN a compilation
_of_relu = torch.ops.aten.threshold_backward.grad_input
_of_tanh = torch.ops.aten.tanh_backward.grad_input


class StackMemory:
    """Tensors by their use and shape."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[Any, ...], torch.Tensor] = {}

    def tensor(self, use: str, *shape: int) -> torch.Tensor:
        """The same one for the same use and shape; what is in it is of no meaning."""
        found = self._tensors.get((use, *shape))
        if found is None:
            found = self._tensors[(use, *shape)] = torch.empty(shape)
        return found


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
        activation = self._stack.activation
        for tower, outputs in enumerate(self._outputs):
            h = self._inputs
            for layer, kept, room in zip(self._layers, self._hidden, self._rooms, strict=True):
                kept[tower] = h = dense(h, *layer[tower], activation, room[tower])
            np.matmul(self._last_weight[tower], h.numpy().T, out=outputs)
        self._outputs += self._last_bias
        return self._outputs

    def backward(self, of_outputs: _Array, rows: slice = slice(None)) -> None:
        """The gradient `[K, num_outputs, N]` of what `forward` gave, into `.grad` of all parameters.

        `rows`: it has these rows only, and the others have none. It takes the place of what the layers gave: there is
        one backward pass for each forward pass.
        """
        self._find_gradients()
        np.add.reduce(of_outputs, axis=2, keepdims=True, out=self._of_last_bias)
        inputs = self._inputs[rows]
        for tower, each in enumerate(of_outputs):
            hidden = [layer[tower][rows] for layer in self._hidden]
            np.matmul(each, hidden[-1].numpy(), out=self._of_last_weight[tower])
            gradient = self._gradients[-1][: len(inputs)]
            _below_outputs(each, self._last_weights[tower], gradient)
            for number in reversed(range(len(hidden))):
                h = hidden[number]
                self._deactivate(gradient, h, h)
                of_weight, of_bias = self._of_layers[number][tower]
                multiply_into((hidden[number - 1] if number else inputs).t(), h, of_weight)
                torch.sum(h, 0, out=of_bias)
                if number:
                    weight = self._layers[number][tower][0]
                    gradient = multiply(h, weight.t(), self._gradients[number - 1][: len(inputs)])

    def input_gradient(self, of_outputs: _Array, tower: int, rows: NDArray[np.int64], columns: slice) -> _Array:
        """Of some columns of the inputs, `[rows, columns]`, by some rows of one tower.

        `of_outputs` `[num_outputs, rows]` has those rows only.
        """
        num = len(rows)
        size = min(-(-num // _ROWS_STEP) * _ROWS_STEP, self._num_rows)  # what is in the other rows is of no meaning
        below = self._gradients[-1][:size]
        _below_outputs(of_outputs, self._last_weights[tower], below[:num])
        for number in reversed(range(len(self._hidden))):
            h = self._hidden[number][tower]
            if num < self._num_rows:
                taken = self._taken[number][:size]
                np.take(h.numpy(), rows, axis=0, out=taken[:num].numpy(), mode="clip")
                h = taken
            self._deactivate(below, h, h)
            if number:
                below = multiply(h, self._layers[number][tower][0].t(), self._gradients[number - 1][:size])
        result: _Array = h[:num].numpy() @ self._layers[0][tower][0][columns].numpy().T
        return result

    def _deactivate(self, gradient: torch.Tensor, outputs: torch.Tensor, out: torch.Tensor) -> None:
        if self._stack.activation == "relu":
            _of_relu(gradient, outputs, 0.0, grad_input=out)
        else:
            _of_tanh(gradient, outputs, grad_input=out)

    # --- memory

    def _prepare(self, num_rows: int) -> None:
        stack = self._stack
        place = self._first.data_ptr()
        if self._place[0] != place:  # a learner moves parameters to memory of its own
            self._place = (place, 0)
            *weights, last_weight = (weight.detach() for weight in stack.weights)
            *biases, last_bias = (bias.detach() for bias in stack.biases)
            self._layers = [_by_tower(*pair) for pair in zip(weights, biases, strict=True)]
            self._last_weight, self._last_bias = last_weight.numpy(), last_bias.numpy()
            self._last_weights = list(last_weight)
        if num_rows == self._num_rows:
            return
        self._num_rows = num_rows
        num_towers, num_inputs = stack.num_towers, stack.weights[0].shape[1]
        self._inputs = torch.empty(num_rows, num_inputs)
        self._x: _Array = self._inputs.numpy()
        # Where small layers are computed; large ones have memory of their own.
        self._rooms: _Tensors = [
            [self._memory.tensor(f"layer {n} of {tower}", num_rows, size) for tower in range(num_towers)]
            for n, size in enumerate(stack.hidden)
        ]
        self._hidden: _Tensors = [list(layer) for layer in self._rooms]
        # Layers of one size need only one: the gradient of each is used up before that of the next is computed.
        self._gradients = [self._memory.tensor("gradient", num_rows, size) for size in stack.hidden]
        self._taken = [self._memory.tensor("rows", num_rows, size) for size in stack.hidden]
        self._outputs: _Array = np.empty((num_towers, self._last_weight.shape[1], num_rows), np.float32)

    def _find_gradients(self) -> None:
        first: Any = self._first.grad
        if self._place[1] == first.data_ptr():
            return
        self._place = (self._place[0], first.data_ptr())
        *of_weights, of_last_weight = (weight.grad for weight in self._stack.weights)
        *of_biases, of_last_bias = (bias.grad for bias in self._stack.biases)
        self._of_layers = [_by_tower(*pair) for pair in zip(of_weights, of_biases, strict=True)]
        self._of_last_weight, self._of_last_bias = of_last_weight.numpy(), of_last_bias.numpy()


def _by_tower(weight: torch.Tensor, bias: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Views of `[K, inputs, outputs]` and `[K, 1, outputs]`: a matrix and a vector of each tower."""
    return list(zip(weight, bias[:, 0], strict=True))


def _below_outputs(of_outputs: _Array, weight: torch.Tensor, out: torch.Tensor) -> None:
    """The gradient that the last layer of one tower hands down."""
    multiplied = torch.mul if len(weight) == 1 else torch.mm
    multiplied(torch.from_numpy(of_outputs).t(), weight, out=out)
