"""A policy as a named model: observations in, parameters of the action distribution and value out.

It has the policy's weights under the policy's own names, so what a trainer publishes fits both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.learn.policies import runner as runners
from ludus.learn.policies.policy import Policy, PolicySpec

__all__ = ["ServedPolicy"]


class ServedPolicy(Policy):
    """`forward(obs)`, or `forward(obs, state, first)` of a recurrent policy, with a batch axis in front of all.

    `has_value=False` leaves the value out, where only actions are chosen.
    """

    def __init__(self, spec: PolicySpec, seed: int = 0, *, has_mask: bool = False, has_value: bool = True) -> None:
        super().__init__(spec, seed)
        self.has_mask = has_mask
        self.has_value = has_value

    def forward(self, obs: Nest, state: Nest = None, first: torch.Tensor | None = None) -> dict[str, Any]:
        params, value, after = runners.step(self, obs, state, first)
        outputs = {"params": params} if after is None else {"params": params, "state": after}
        if self.has_value:
            outputs["value"] = self.in_rewards(value)
        return outputs

    def in_rewards(self, value: Any) -> Any:
        """Values in units of the rewards."""
        return value if self.value_scale is None else self.value_scale(value)

    def example(self) -> tuple[Any, ...]:
        """Arguments of one row, as NumPy arrays."""
        obs = nests.map(lambda leaf: leaf.allocate(()), self.spec.obs)
        if not self.is_recurrent:
            return (obs,)
        return obs, nests.map(lambda leaf: leaf.allocate(()), self.state_spec), np.True_
