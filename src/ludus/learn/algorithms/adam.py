"""Adam on one flat tensor. https://arxiv.org/abs/1412.6980

The same numbers as `torch.optim.Adam`. Making one of those loads torch's compiler, about a second at the start of every
run, and its step costs ten times the arithmetic of a small network; here all parameters are one tensor already.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from ludus.data.nest import Nest

__all__ = ["Adam"]

_BETA_1, _BETA_2 = 0.9, 0.999


class Adam:
    """`step` moves `data` along `grad`, in place."""

    def __init__(self, data: torch.Tensor, grad: torch.Tensor, *, learning_rate: float, eps: float) -> None:
        self.learning_rate = learning_rate
        self._data = data
        self._grad = grad
        self._eps = eps
        self._mean = torch.zeros_like(grad)
        self._square = torch.zeros_like(grad)
        self._num_steps = 0

    @torch.no_grad()
    def step(self) -> None:
        self._num_steps += 1
        self._mean.lerp_(self._grad, 1.0 - _BETA_1)
        self._square.mul_(_BETA_2).addcmul_(self._grad, self._grad, value=1.0 - _BETA_2)
        size = self.learning_rate / (1.0 - _BETA_1**self._num_steps)
        scale = math.sqrt(1.0 - _BETA_2**self._num_steps)
        # -size * mean / (sqrt(square) / scale + eps), with one temporary
        self._data.addcdiv_(self._mean, self._square.sqrt().add_(self._eps * scale), value=-size * scale)

    def save(self) -> dict[str, Nest]:
        return {
            "mean": self._mean.cpu().numpy().copy(),
            "square": self._square.cpu().numpy().copy(),
            "num_steps": self._num_steps,
        }

    def restore(self, saved: dict[str, Nest]) -> None:
        self._mean.copy_(torch.from_numpy(np.array(saved["mean"])))
        self._square.copy_(torch.from_numpy(np.array(saved["square"])))
        self._num_steps = int(saved["num_steps"])
