"""Distributions of the return of each choice, from which actions are chosen by their means."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ludus.data.actions import ActionSpec
from ludus.errors import ConfigError
from ludus.learn.ops.distributions.epsilon_greedy import EpsilonGreedy

__all__ = ["CategoricalReturns", "QuantileReturns"]


class CategoricalReturns(EpsilonGreedy):
    """A model gives the logits of `num_atoms` returns, evenly from `v_min` to `v_max`, for each choice.

    https://arxiv.org/abs/1707.06887
    """

    def __init__(self, action: ActionSpec, *, num_atoms: int, v_min: float, v_max: float) -> None:
        super().__init__(action, num_per_choice=num_atoms)
        if num_atoms < 2 or not v_min < v_max:
            raise ConfigError(f"{num_atoms} atoms from {v_min} to {v_max}: 2 at least, and v_min below v_max.")
        self._atoms = np.linspace(v_min, v_max, num_atoms, dtype=np.float32)

    def q_values(self, outputs: Any) -> Any:
        logits = outputs.reshape(*outputs.shape[:-1], self.num_choices, len(self._atoms))
        if isinstance(logits, np.ndarray):
            probs = np.exp(logits - logits.max(axis=-1, keepdims=True))
            return probs @ self._atoms / probs.sum(axis=-1)
        return logits.softmax(-1) @ torch.from_numpy(self._atoms).to(logits.device)


class QuantileReturns(EpsilonGreedy):
    """A model gives `num_quantiles` returns for each choice, all of the same probability.

    https://arxiv.org/abs/1710.10044
    """

    def __init__(self, action: ActionSpec, *, num_quantiles: int) -> None:
        super().__init__(action, num_per_choice=num_quantiles)
        self._num_quantiles = num_quantiles

    def q_values(self, outputs: Any) -> Any:
        return outputs.reshape(*outputs.shape[:-1], self.num_choices, self._num_quantiles).mean(-1)
