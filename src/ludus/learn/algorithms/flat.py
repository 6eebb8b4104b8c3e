"""All parameters of a policy in one tensor, and all gradients in another.

One optimiser step, one norm, one all-reduce, instead of one for each layer: in small networks that is most of the cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

__all__ = ["FlatParameters"]


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
