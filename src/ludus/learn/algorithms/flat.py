"""All parameters of a policy in one tensor, and all gradients in another.

One optimiser step, one norm, one all-reduce, instead of one for each layer: in small networks that is most of the cost.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["FlatParameters"]


class FlatParameters:
    """Moves a module's parameters into `data`, their gradients into `grad`, as views; the module works as before."""

    def __init__(self, module: nn.Module) -> None:
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        size = sum(parameter.numel() for parameter in parameters)
        device = parameters[0].device
        self.data = torch.empty(size, device=device)
        self.grad = torch.zeros(size, device=device)
        start = 0
        with torch.no_grad():
            for parameter in parameters:
                part = slice(start, start + parameter.numel())
                stride = parameter.stride()  # channels-last weights stay so: their elements are dense, in another order
                view = self.data[part].as_strided(parameter.shape, stride, start)
                view.copy_(parameter)
                parameter.data = view
                parameter.grad = self.grad[part].as_strided(parameter.shape, stride, start)
                start = part.stop

    def clip_(self, max_norm: float) -> float:
        """Shorten the gradient to `max_norm`, if it is longer and that is not 0; gives its norm before."""
        norm = float(torch.linalg.vector_norm(self.grad))
        if max_norm > 0.0 and not norm <= max_norm:  # not a number: so be it, the loss will tell
            self.grad.mul_(max_norm / (norm + 1e-6))
        return norm
