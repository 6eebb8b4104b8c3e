"""Transitions: single actions with what followed, as replay gives them to a learner."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ludus.data.nest import Nest

__all__ = ["Transitions"]


@dataclass(kw_only=True)
class Transitions:
    """B actions, each with the n steps that followed, as NumPy arrays, or tensors inside a learner.

    The value of `action` is estimated by

        reward + discount * value(next_obs)

    An episode that ended within the n steps ends the sum: `discount` is 0 if it terminated; if it was cut off, it is
    `gamma` to the power of the steps that were made, and `next_obs` is its final observation.
    """

    obs: Nest  # [B, ...]
    action: Any  # [B, ...]
    reward: Any  # float32 [B] discounted sum of the next n rewards
    discount: Any  # float32 [B] what the value of `next_obs` counts
    next_obs: Nest  # [B, ...]
    mask: Any = None  # bool [B, choices] which were allowed at `obs`
    next_mask: Any = None  # bool [B, choices] which are at `next_obs`

    @property
    def num_rows(self) -> int:
        return int(self.reward.shape[0])

    def to_nest(self) -> dict[str, Nest]:
        """For the codec; arrays are shared."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
