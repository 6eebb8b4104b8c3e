"""An optimiser: the parameters of one network in one tensor, their gradient in another, and Adam.

One step, one norm, one all-reduce, instead of one for each layer: in small networks that is most of the cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ludus.data.nest import Nest
from ludus.learn.algorithms.algorithm import AlgorithmConfig

__all__ = ["Adam", "FlatParameters", "Optimiser"]

_BETA_1, _BETA_2 = 0.9, 0.999


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


class FlatParameters:
    """Moves a module's parameters into `data`, their gradients into `grad`, as views; the module works as before.

    A network with a tower for the policy and one for the value has both clipped apart, so that the value's gradient
    never takes the policy's share: `stacked` parameters hold the policy's part at index 0 of their first axis and the
    value's at index 1, `value_only` ones are wholly the value's.
    """

    def __init__(
        self, module: nn.Module, *, stacked: Sequence[nn.Parameter] = (), value_only: Sequence[nn.Parameter] = ()
    ) -> None:
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        size = sum(parameter.numel() for parameter in parameters)
        device = parameters[0].device
        self.data = torch.empty(size, device=device)
        self.grad = torch.zeros(size, device=device)
        is_value = torch.zeros(size, device=device)
        halves, wholes = {id(parameter) for parameter in stacked}, {id(parameter) for parameter in value_only}
        start = 0
        with torch.no_grad():
            for parameter in parameters:
                part = slice(start, start + parameter.numel())
                stride = parameter.stride()  # channels-last weights stay so: their elements are dense, in another order
                view = self.data[part].as_strided(parameter.shape, stride, start)
                view.copy_(parameter)
                parameter.data = view
                parameter.grad = self.grad[part].as_strided(parameter.shape, stride, start)
                if id(parameter) in halves:
                    is_value[start + parameter.numel() // 2 : part.stop] = 1.0
                elif id(parameter) in wholes:
                    is_value[part] = 1.0
                start = part.stop
        self._towers = torch.stack([1.0 - is_value, is_value]) if stacked or value_only else None
        self._squares = torch.empty_like(self.grad) if self._towers is not None else None

    def clip_(self, max_norm: float) -> float:
        """Scale the gradient, of each tower by itself, down to `max_norm`; 0 disables it. Gives the norm before."""
        if self._towers is None:
            norm = float(torch.linalg.vector_norm(self.grad))
            if max_norm > 0.0 and not norm <= max_norm:  # NaN: left alone; the learner's finite check reports it
                self.grad.mul_(max_norm / (norm + 1e-6))
            return norm
        torch.mul(self.grad, self.grad, out=self._squares)
        norms = [math.sqrt(square) for square in (self._towers @ self._squares).tolist()]
        if max_norm > 0.0 and not max(norms) <= max_norm:
            factors = [1.0 if norm <= max_norm else max_norm / (norm + 1e-6) for norm in norms]
            self.grad.mul_(self.grad.new_tensor(factors) @ self._towers)
        return math.hypot(*norms)


class Adam:
    """`step` moves `data` along `grad`, in place. https://arxiv.org/abs/1412.6980

    The same numbers as `torch.optim.Adam`. Making one of those loads torch's compiler, about a second at the start of
    every run, and its step costs ten times the arithmetic of a small network; here all parameters are one tensor.
    """

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
