"""The forward pass of a `TwinMLP` for leaves: both towers together, into memory that is made once.

Against one tower after the other with new arrays it takes half the calls, which for 64 rows counts as much as the
arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.learn.networks.twin import TwinMLP

__all__ = ["TwinForward"]


class TwinForward:
    """`logits [N, actions], value [N]`, of at most `max_rows` rows. The weights are read where they are."""

    def __init__(self, model: TwinMLP, max_rows: int) -> None:
        self._model = model
        self._place = 0
        self._weights: list[NDArray[Any]] = []
        self._biases: list[NDArray[Any]] = []
        self._heads: list[NDArray[Any]] = []
        self._hidden = [np.empty((2, max_rows, size), np.float32) for size in model.hidden]

    def __call__(self, obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        model = self._model
        if self._place != model.place():  # a learner moves parameters to memory of its own
            self._weights = [weight.detach().numpy() for weight in model.weights]  # [2, inputs, outputs]
            self._biases = [bias.detach().numpy() for bias in model.biases]
            heads = (model.policy_weight.T, model.policy_bias, model.value_weight, model.value_bias)
            self._heads = [each.detach().numpy() for each in heads]
            self._place = model.place()
        h: NDArray[np.float32] = obs
        for weight, bias, whole in zip(self._weights, self._biases, self._hidden, strict=True):
            out = whole[:, : len(obs)]
            np.matmul(h, weight, out=out)
            out += bias
            if model.activation == "tanh":
                np.tanh(out, out=out)
            else:
                np.maximum(out, np.float32(0.0), out=out)
            h = out
        policy_weight, policy_bias, value_weight, value_bias = self._heads
        logits = h[0] @ policy_weight
        logits += policy_bias
        value = (h[1] @ value_weight)[:, 0]
        value += value_bias
        return logits, value
