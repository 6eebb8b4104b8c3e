"""An optimiser: the parameters of one network in one tensor, their gradient in another, and Adam."""

from __future__ import annotations

from typing import Any

from torch import nn

from ludus.data.nest import Nest
from ludus.learn.algorithms.adam import Adam
from ludus.learn.algorithms.algorithm import AlgorithmConfig
from ludus.learn.algorithms.flat import FlatParameters

__all__ = ["Optimiser"]


class Optimiser:
    """`zero_grad`, backward passes, `step`. The network's parameters are moved into memory of the optimiser's."""

    def __init__(self, network: nn.Module, config: AlgorithmConfig) -> None:
        towers = getattr(getattr(network, "model", None), "towers", None)  # of a policy
        stacked, value_only = towers() if towers is not None else ([], [])
        self._flat = FlatParameters(network, stacked=stacked, value_only=value_only)
        self._adam = Adam(self._flat.data, self._flat.grad, learning_rate=config.learning_rate, eps=config.adam_eps)
        self._max_grad_norm = config.max_grad_norm

    def set_learning_rate(self, learning_rate: float) -> None:
        self._adam.learning_rate = learning_rate

    def zero_grad(self) -> None:
        self._flat.grad.zero_()

    def step(self, reduce: Any = None) -> float:
        """Sum the gradient over trainer ranks by `reduce`, clip it, and go one step along it. Returns its norm."""
        if reduce is not None:
            reduce(self._flat.grad)
        norm = self._flat.clip_(self._max_grad_norm)
        self._adam.step()
        return norm

    def save(self) -> dict[str, Nest]:
        return self._adam.save()

    def restore(self, saved: dict[str, Nest]) -> None:
        self._adam.restore(saved)
