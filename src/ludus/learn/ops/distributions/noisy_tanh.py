"""One action for each observation, with noise to explore: what TD3 acts by."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.data.actions import ActionSpec
from ludus.learn.ops.distributions.action_bounds import ActionBounds
from ludus.learn.ops.distributions.head import Head, check_params

__all__ = ["NoisyTanh"]


class NoisyTanh(Head):
    """`params` are numbers that tanh brings into the bounds, and what is explored by.

    That is the share of uniformly random actions, their key (see `ActionBounds.random`), and the std of Gaussian noise
    in units of the bounds, at which actions are clipped. They have no density: `logp`, `entropy` and `kl` are 0.
    """

    num_free = 0
    num_explore = 3

    def __init__(self, action: ActionSpec) -> None:
        self.bounds = ActionBounds(action)
        self.num_outputs = self.bounds.size
        self.num_params = self.num_outputs + self.num_explore

    def sample(
        self, params: NDArray[np.float32], rng: np.random.Generator, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        check_params(params, self.num_params)
        share, keys, std = params[:, -3], params[:, -2], params[:, -1:]
        unit = np.tanh(params[:, : self.num_outputs])
        unit += std * rng.standard_normal(unit.shape, np.float32)
        action = self.bounds.from_unit(np.clip(unit, -1.0, 1.0, out=unit))
        if share.any():
            is_random = rng.random(len(params), np.float32) < share
            action = np.where(is_random[:, None], self.bounds.random(keys, rng), action)
        return action, np.zeros(len(params), np.float32)

    def mode(self, params: NDArray[np.float32], mask: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        check_params(params, self.num_params)
        return self.bounds.from_unit(np.tanh(params[:, : self.num_outputs]))

    def logp(self, params: Any, action: Any, mask: Any = None) -> Any:
        return self.entropy(params)

    def entropy(self, params: Any, mask: Any = None) -> Any:
        check_params(params, self.num_params)
        return torch.zeros_like(params[..., 0])

    def logp_and_entropy(self, params: Any, action: Any, mask: Any = None) -> tuple[Any, Any]:
        return self.entropy(params), self.entropy(params)

    def kl(self, params_old: Any, params_new: Any, mask: Any = None) -> Any:
        return self.entropy(params_new)
