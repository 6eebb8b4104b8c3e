"""Adam on one flat tensor. https://arxiv.org/abs/1412.6980

The same numbers as `torch.optim.Adam`. Making one of those loads torch's compiler, about a second at the start of every
run, and its step costs ten times the arithmetic of a small network; here all parameters are one tensor already.
"""

from __future__ import annotations

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
        self._num_steps = torch.zeros((), device=grad.device)

    @torch.no_grad()
    def step(self) -> None:
        # One pass over memory: at a million parameters four times as fast as an operation for each term.
        torch._fused_adam_(
            [self._data], [self._grad], [self._mean], [self._square], [], [self._num_steps.add_(1.0)],
            lr=self.learning_rate, beta1=_BETA_1, beta2=_BETA_2, eps=self._eps, weight_decay=0.0, amsgrad=False,
            maximize=False,
        )  # fmt: skip

    def save(self) -> dict[str, Nest]:
        return {
            "mean": self._mean.cpu().numpy().copy(),
            "square": self._square.cpu().numpy().copy(),
            "num_steps": int(self._num_steps),
        }

    def restore(self, saved: dict[str, Nest]) -> None:
        self._mean.copy_(torch.from_numpy(np.array(saved["mean"])))
        self._square.copy_(torch.from_numpy(np.array(saved["square"])))
        self._num_steps.fill_(int(saved["num_steps"]))
