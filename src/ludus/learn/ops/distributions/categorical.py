"""Discrete actions: one choice, or several at once, with masks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ludus.learn.ops.distributions.head import FORBIDDEN, Head, check_params

__all__ = ["Categorical", "MultiCategorical"]

_FORBIDDEN = np.float32(FORBIDDEN)


class _LogpAndEntropy(torch.autograd.Function):
    """Both at once, with the gradient written out: in a small network this is much of what is beside the layers."""

    @staticmethod
    def forward(context: Any, logits: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logps = logits.log_softmax(-1)
        chosen = action.unsqueeze(-1)
        probs = logps.exp()
        entropy = -(probs * logps).sum(-1)
        context.save_for_backward(logps, probs, entropy, chosen)
        return logps.gather(-1, chosen).squeeze(-1), entropy

    @staticmethod
    def backward(context: Any, of_logp: torch.Tensor, of_entropy: torch.Tensor) -> tuple[torch.Tensor, None]:
        """d logp = 1[chosen] - p;  d entropy = -p (log p + entropy)."""
        logps, probs, entropy, chosen = context.saved_tensors
        weight = (logps + entropy.unsqueeze(-1)).mul_(of_entropy.unsqueeze(-1)).add_(of_logp.unsqueeze(-1))
        return weight.mul_(probs).neg_().scatter_add_(-1, chosen, of_logp.unsqueeze(-1)), None


class Categorical(Head):
    """One of `num_choices`; `params` are logits. An action is an int64 scalar."""

    num_free = 0

    def __init__(self, num_choices: int) -> None:
        self.num_outputs = self.num_params = num_choices

    def sample(
        self, params: NDArray[np.float32], rng: np.random.Generator, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        check_params(params, self.num_params)
        logits = params if mask is None else np.where(mask, params, _FORBIDDEN)
        logits = np.ascontiguousarray(logits.T)  # [choices, N]: rows as long as NumPy likes them
        shifted = logits - np.maximum.reduce(logits, axis=0)
        cumulative = np.add.accumulate(np.exp(shifted), axis=0)
        total = cumulative[-1]
        # A float32 draw is at most 1 - 2**-24, and that times any number rounds to less than the number. So the draw
        # is always below the total, and the first sum above it is never that of a choice with probability 0.
        draw = rng.random(len(params), np.float32) * total
        action = (cumulative > draw).argmax(axis=0)
        return action, shifted[action, np.arange(len(params))] - np.log(total)

    def mode(self, params: NDArray[np.float32], mask: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        check_params(params, self.num_params)
        logits = params if mask is None else np.where(mask, params, _FORBIDDEN)
        action: NDArray[np.int64] = logits.argmax(axis=-1)
        return action

    def logp(self, params: Any, action: Any, mask: Any = None) -> Any:
        return self.all_logp(params, mask).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self, params: Any, mask: Any = None) -> Any:
        logps = self.all_logp(params, mask)
        return -(logps.exp() * logps).sum(-1)

    def logp_and_entropy(self, params: Any, action: Any, mask: Any = None) -> tuple[Any, Any]:
        check_params(params, self.num_params)
        logits = params if mask is None else params.masked_fill(~mask, FORBIDDEN)
        logp, entropy = _LogpAndEntropy.apply(logits, action)
        return logp, entropy

    def kl(self, params_old: Any, params_new: Any, mask: Any = None) -> Any:
        old, new = self.all_logp(params_old, mask), self.all_logp(params_new, mask)
        return (old.exp() * (old - new)).sum(-1)

    def all_logp(self, params: Any, mask: Any = None) -> Any:
        """`[..., choices]` the log-probability of each choice."""
        check_params(params, self.num_params)
        return F.log_softmax(params if mask is None else torch.where(mask, params, FORBIDDEN), dim=-1)


class MultiCategorical(Head):
    """Several independent choices; `params` are the logits of all in a row, and so is a mask. An action is a vector."""

    num_free = 0

    def __init__(self, num_choices: Sequence[int]) -> None:
        self.num_outputs = self.num_params = sum(num_choices)
        self._parts = [
            (Categorical(size), slice(start, stop))
            for size, (start, stop) in zip(num_choices, pairwise(accumulate(num_choices, initial=0)), strict=True)
        ]

    def sample(
        self, params: NDArray[np.float32], rng: np.random.Generator, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        check_params(params, self.num_params)
        action = np.empty((len(params), len(self._parts)), np.int64)
        logp = np.zeros(len(params), np.float32)
        for index, (part, where) in enumerate(self._parts):
            action[:, index], logp_part = part.sample(params[:, where], rng, None if mask is None else mask[:, where])
            logp += logp_part
        return action, logp

    def mode(self, params: NDArray[np.float32], mask: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        check_params(params, self.num_params)
        modes = [part.mode(params[:, where], None if mask is None else mask[:, where]) for part, where in self._parts]
        return np.stack(modes, axis=-1)

    def logp(self, params: Any, action: Any, mask: Any = None) -> Any:
        return sum(part.logp(p, action[..., i], m) for i, (part, p, m) in enumerate(self._split(params, mask)))

    def entropy(self, params: Any, mask: Any = None) -> Any:
        return sum(part.entropy(p, m) for part, p, m in self._split(params, mask))

    def logp_and_entropy(self, params: Any, action: Any, mask: Any = None) -> tuple[Any, Any]:
        both = [part.logp_and_entropy(p, action[..., i], m) for i, (part, p, m) in enumerate(self._split(params, mask))]
        return sum(logp for logp, _ in both), sum(entropy for _, entropy in both)

    def kl(self, params_old: Any, params_new: Any, mask: Any = None) -> Any:
        pairs = zip(self._split(params_old, mask), self._split(params_new, mask), strict=True)
        return sum(part.kl(old, new, m) for (part, old, m), (_, new, _) in pairs)

    def _split(self, params: Any, mask: Any) -> list[tuple[Categorical, Any, Any]]:
        check_params(params, self.num_params)
        return [(part, params[..., at], None if mask is None else mask[..., at]) for part, at in self._parts]
