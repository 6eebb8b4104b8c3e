"""The Huber loss of the Q-values of chosen actions, with the gradient written out.

In a small network each node of torch's graph costs as much as a layer; this is one instead of five.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["chosen_huber"]


def chosen_huber(
    outputs: torch.Tensor, action: torch.Tensor, target: torch.Tensor, delta: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Loss, with gradients, value and error of each row, for Q-values `[B, choices]`, actions `[B]`, targets `[B]`."""
    loss, q, error = _ChosenHuber.apply(outputs, action, target, delta)
    return loss, q, error


class _ChosenHuber(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, outputs: torch.Tensor, action: torch.Tensor, target: torch.Tensor, delta: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        chosen = action.unsqueeze(-1)
        q = outputs.gather(-1, chosen).squeeze(-1)
        error = q - target
        clipped = error.clamp(-delta, delta)
        context.shape = outputs.shape
        context.save_for_backward(chosen, clipped)
        context.mark_non_differentiable(q, error)
        return clipped * torch.sub(error, clipped, alpha=0.5), q, error

    @staticmethod
    def backward(context: Any, of_loss: torch.Tensor, *_: Any) -> tuple[torch.Tensor, None, None, None]:
        chosen, clipped = context.saved_tensors
        gradient = clipped.new_zeros(context.shape)
        return gradient.scatter_(-1, chosen, (of_loss * clipped).unsqueeze(-1)), None, None, None
