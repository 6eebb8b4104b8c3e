"""The bounds of continuous actions: to units of them, where -1 is `low` and 1 is `high`, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.data.actions import ActionSpec, Continuous
from ludus.errors import ConfigError

__all__ = ["ActionBounds"]

_UNBOUNDED = 1e30


class ActionBounds:
    """Of actions that all have bounds. Raises `ConfigError` for others."""

    def __init__(self, action: ActionSpec) -> None:
        if not isinstance(action, Continuous):
            raise ConfigError(f"these actions are {action}; continuous ones are needed here.")
        low, high = np.asarray(action.low, np.float64), np.asarray(action.high, np.float64)
        # A bound near the largest float32 is how some envs write that there is none.
        if not (np.abs([low, high]) < _UNBOUNDED).all():
            raise ConfigError(
                f"actions between {action.low} and {action.high} have no bounds that tanh could bring them into. Use "
                "ppo, or bound them in the environment (gymnasium.wrappers.RescaleAction, ClipAction)."
            )
        self.size = action.size
        self.centre = ((high + low) / 2.0).astype(np.float32)
        self.half = ((high - low) / 2.0).astype(np.float32)
        self.log_volume = float(np.log(high - low).sum())
        self._is_unit = bool((self.centre == 0.0).all() and (self.half == 1.0).all())
        self._tensors = torch.from_numpy(self.centre), torch.from_numpy(1.0 / self.half)

    def to_unit(self, action: torch.Tensor) -> torch.Tensor:
        """Actions as the env has them, in units of the bounds."""
        if self._is_unit:
            return action
        centre, inverse = (tensor.to(action.device) for tensor in self._tensors)
        return (action - centre) * inverse

    def from_unit(self, unit: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions for the env."""
        action: NDArray[np.float32] = self.centre + self.half * unit
        return action

    def random(self, keys: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """Uniform actions, one for each row. Rows with the same key other than 0 get what they got by it before."""
        key = int(keys[0]) if len(keys) else 0
        drawn: Any = (rng if key == 0 else np.random.default_rng(key)).random((len(keys), self.size), np.float32)
        return self.from_unit(2.0 * drawn - 1.0)
