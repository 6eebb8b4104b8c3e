"""A policy as a named model: observations in, parameters of the action distribution and value out.

It has the policy's weights under the policy's own names, so what a trainer publishes fits both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.learn.policies.policy import Policy, PolicySpec

__all__ = ["ServedPolicy"]


class ServedPolicy(Policy):
    """`forward(obs)`, or `forward(obs, memory, first)` of a recurrent policy, with a batch axis in front of all."""

    def __init__(self, spec: PolicySpec, seed: int = 0, *, has_mask: bool = False) -> None:
        super().__init__(spec, seed)
        self.has_mask = has_mask

    def forward(self, obs: Nest, memory: Nest = None, first: torch.Tensor | None = None) -> dict[str, Any]:
        if not self.is_recurrent:
            params, value = self.evaluate(obs)
            return {"params": params, "value": self._in_rewards(value)}
        one_step = nests.map(lambda leaf: leaf.unsqueeze(0), obs)
        assert first is not None
        params, value, after = self.advance(one_step, memory, first.unsqueeze(0))
        return {"params": params.squeeze(0), "value": self._in_rewards(value.squeeze(0)), "memory": after}

    def _in_rewards(self, value: Any) -> Any:
        return value if self.value_scale is None else self.value_scale(value)

    def example(self) -> tuple[Any, ...]:
        """Arguments of one row, as NumPy arrays."""
        obs = nests.map(lambda leaf: leaf.allocate(()), self.spec.obs)
        if not self.is_recurrent:
            return (obs,)
        return obs, nests.map(lambda leaf: leaf.allocate(()), self.memory_spec), np.True_
