"""PPO's loss of a categorical policy with its gradient written out, in NumPy.

For minibatches of some hundred rows, torch's graph of this loss costs as much as a small network's backward pass; the
arithmetic is next to nothing. `losses.clipped_loss` has the same in torch for everything else; a test compares both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ludus.learn.ops.distributions.categorical import Categorical

__all__ = ["clipped_loss", "is_for"]

_MOST_ENTRIES = 65_536  # beyond, torch is as fast


def is_for(head: Any, params: torch.Tensor) -> bool:
    """Whether `clipped_loss` can be used, and pays."""
    return isinstance(head, Categorical) and params.device.type == "cpu" and params.numel() <= _MOST_ENTRIES


def clipped_loss(
    params: torch.Tensor,
    value: torch.Tensor,
    *,
    action: torch.Tensor,
    logp: torch.Tensor,
    advantage: torch.Tensor,
    value_target: torch.Tensor,
    clip: float | tuple[torch.Tensor, torch.Tensor],
    value_coef: float,
    entropy_coef: float,
) -> tuple[torch.Tensor, dict[str, float]]:
    """The mean loss over `[N]` steps, which carries the gradients of `params [N, choices]` and `value`, and metrics."""
    metrics: dict[str, float] = {}
    given = [tensor.numpy() for tensor in (action, logp, advantage, value_target)]
    bounds = (clip[0].numpy(), clip[1].numpy()) if isinstance(clip, tuple) else (1.0 - clip, 1.0 + clip)
    loss = _ClippedLoss.apply(params, value, given, (bounds, value_coef, entropy_coef), metrics)
    return loss, metrics


class _ClippedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        params: torch.Tensor,
        value: torch.Tensor,
        given: list[Any],
        settings: tuple[tuple[Any, Any], float, float],
        metrics: dict[str, float],
    ) -> torch.Tensor:
        action, old_logp, advantage, value_target = given
        (lowest, highest), value_coef, entropy_coef = settings
        logits = np.ascontiguousarray(params.numpy().T)  # [choices, N]: rows as long as NumPy likes them
        num_rows = logits.shape[1]
        rows = np.arange(num_rows)
        logps = logits - np.maximum.reduce(logits, axis=0)
        probs = np.exp(logps)
        total = np.add.reduce(probs, axis=0)
        probs /= total
        logps -= np.log(total)
        log_ratio = logps[action, rows] - old_logp
        ratio = np.exp(log_ratio)
        plain = advantage * ratio
        clipped = advantage * np.where(advantage > 0.0, np.minimum(ratio, highest), np.maximum(ratio, lowest))
        negative_entropy = np.add.reduce(probs * logps, axis=0)
        error = value.numpy() - value_target
        scale = np.float32(1.0 / num_rows)
        # d(-clipped) / d logp is -plain where the ratio counts, and 0 where it is clipped
        slope = np.where(plain <= clipped, plain, np.float32(0.0)) * scale
        gradient = logps - negative_entropy
        gradient *= np.float32(entropy_coef) * scale
        gradient += slope
        gradient *= probs
        gradient[action, rows] -= slope
        context.gradients = gradient.T, error * (np.float32(value_coef) * scale)
        metrics["policy_loss"] = -float(np.add.reduce(clipped)) / num_rows
        metrics["value_loss"] = 0.5 * float(error @ error) / num_rows
        metrics["entropy"] = -float(np.add.reduce(negative_entropy)) / num_rows
        metrics["kl"] = float(np.add.reduce(ratio - log_ratio)) / num_rows - 1.0
        loss = metrics["policy_loss"] + value_coef * metrics["value_loss"] - entropy_coef * metrics["entropy"]
        return params.new_tensor(loss)

    @staticmethod
    def backward(context: Any, of_loss: torch.Tensor) -> tuple[Any, ...]:
        of_params, of_value = (torch.from_numpy(gradient) for gradient in context.gradients)
        if float(of_loss) != 1.0:
            of_params, of_value = of_params * of_loss, of_value * of_loss
        return of_params, of_value, None, None, None
