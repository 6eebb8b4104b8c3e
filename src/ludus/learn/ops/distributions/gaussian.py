"""Continuous actions: independent Gaussians, free or squashed into the bounds of the action."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ludus.data.actions import Continuous
from ludus.errors import ConfigError, DataError
from ludus.learn.ops.distributions.head import Head, check_params

__all__ = ["DiagGaussian", "SquashedGaussian"]

# Beyond these, squares of what is divided by the std would leave float32; nothing that learns is near them.
_MIN_LOG_STD, _MAX_LOG_STD = -20.0, 10.0
_UNBOUNDED = 1e30
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class DiagGaussian(Head):
    """Independent Gaussians; `params` are the means and then the logs of the std.

    The model gives the means; the stds are the same for all rows. Given the spec of the actions, both are in units of
    its bounds: -1 and 1 of a bounded entry are `low` and `high`. Actions are not clipped: one beyond its bounds is for
    the env to clip, so that its probability is that of what was drawn.
    """

    def __init__(self, action: int | Continuous) -> None:
        size = action if isinstance(action, int) else action.size
        self.num_outputs = self.num_free = self._size = size
        self.num_params = 2 * size
        self._centre = np.zeros(size, np.float32)
        self._half = np.ones(size, np.float32)
        if isinstance(action, Continuous):
            low, high = np.asarray(action.low, np.float64), np.asarray(action.high, np.float64)
            # A bound near the largest float32 is how some envs write that there is none.
            bounded = (np.abs(low) < _UNBOUNDED) & (np.abs(high) < _UNBOUNDED)
            self._centre[bounded] = (high[bounded] + low[bounded]) / 2.0
            self._half[bounded] = (high[bounded] - low[bounded]) / 2.0
        self._is_scaled = bool((self._centre != 0.0).any() or (self._half != 1.0).any())
        self._log_half = float(np.log(self._half.astype(np.float64)).sum())

    def sample(
        self, params: NDArray[np.float32], rng: np.random.Generator, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        mean, log_std = self._split_numpy(params)
        std: NDArray[np.float32] = np.exp(log_std)
        variable = mean + std * rng.standard_normal(mean.shape, np.float32)
        if not self._is_scaled:
            return variable, self._logp_numpy(mean, log_std, std, variable)
        action = self._centre + self._half * variable
        variable = (action - self._centre) / self._half
        return action, self._logp_numpy(mean, log_std, std, variable) - np.float32(self._log_half)

    def mode(self, params: NDArray[np.float32], mask: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        action: NDArray[np.float32] = self._centre + self._half * self._split_numpy(params)[0]
        return action

    def logp(self, params: Any, action: Any, mask: Any = None) -> Any:
        mean, log_std = self._split(params)
        self._check_action(action)
        if not self._is_scaled:
            return self._logp(mean, log_std, action)
        centre, half = torch.from_numpy(self._centre).to(action), torch.from_numpy(self._half).to(action)
        return self._logp(mean, log_std, (action - centre) / half) - self._log_half

    def entropy(self, params: Any, mask: Any = None) -> Any:
        return self._split(params)[1].sum(-1) + (self._size * (_HALF_LOG_TAU + 0.5) + self._log_half)

    def logp_and_entropy(self, params: Any, action: Any, mask: Any = None) -> tuple[Any, Any]:
        return self.logp(params, action), self.entropy(params)

    def kl(self, params_old: Any, params_new: Any, mask: Any = None) -> Any:
        (mean_old, log_std_old), (mean_new, log_std_new) = self._split(params_old), self._split(params_new)
        ratio = log_std_old - log_std_new
        distance = (mean_old - mean_new) * torch.exp(-log_std_new)
        return (0.5 * (torch.exp(2.0 * ratio) + distance.square() - 1.0) - ratio).sum(-1)

    # What follows is in terms of the Gaussian's own variable: the action, unless that is scaled or squashed.

    def _split_numpy(self, params: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        check_params(params, self.num_params)
        return params[:, : self._size], params[:, self._size :].clip(_MIN_LOG_STD, _MAX_LOG_STD)

    def _split(self, params: Any) -> tuple[Any, Any]:
        check_params(params, self.num_params)
        return params[..., : self._size], params[..., self._size :].clamp(_MIN_LOG_STD, _MAX_LOG_STD)

    def _logp_numpy(self, mean: Any, log_std: Any, std: Any, variable: Any) -> NDArray[np.float32]:
        # From the rounded variable, not from the noise it was made of: that is what torch will see.
        terms = 0.5 * np.square((variable - mean) / std) + log_std
        logp: NDArray[np.float32] = -terms.sum(axis=-1) - np.float32(self._size * _HALF_LOG_TAU)
        return logp

    def _logp(self, mean: Any, log_std: Any, variable: Any) -> Any:
        terms = 0.5 * ((variable - mean) * torch.exp(-log_std)).square() + log_std
        return -terms.sum(-1) - self._size * _HALF_LOG_TAU

    def _check_action(self, action: Any) -> None:
        if action.shape[-1] != self._size:
            raise DataError(f"actions have the shape {tuple(action.shape)}: the last should be {self._size}")


class SquashedGaussian(DiagGaussian):
    """A Gaussian's variable, taken by tanh into the bounds of the action. Actions are stored as the env sees them.

    `mode` is the squashed mean, which is the median. The entropy has no closed form: it is an integral in one
    dimension, taken by Gauss–Hermite quadrature, so that it is deterministic and its gradient is right.
    """

    _EDGE = 1.0 - 1e-6  # where actions at the bounds are taken to be, in units of tanh
    _NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)

    def __init__(self, action: Continuous) -> None:
        if not action.is_bounded:
            raise ConfigError(
                f"actions between {action.low} and {action.high} cannot be squashed, for they have no bounds. "
                "Set squash to false."
            )
        super().__init__(action)
        low, high = np.asarray(action.low), np.asarray(action.high)
        self._centre = ((high + low) / 2.0).astype(np.float32)
        self._half = ((high - low) / 2.0).astype(np.float32)
        self._log_half = float(np.log((high - low) / 2.0).sum())
        self._weights = torch.tensor(self._WEIGHTS / self._WEIGHTS.sum(), dtype=torch.float32)
        self._nodes = torch.tensor(self._NODES, dtype=torch.float32)

    def sample(
        self, params: NDArray[np.float32], rng: np.random.Generator, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        mean, log_std = self._split_numpy(params)
        std: NDArray[np.float32] = np.exp(log_std)
        drawn = mean + std * rng.standard_normal(mean.shape, np.float32)
        action = self._squash(drawn)
        unit = ((action - self._centre) / self._half).clip(-self._EDGE, self._EDGE)
        variable = np.arctanh(unit)
        stretch = np.log1p(-unit * unit).sum(axis=-1) + np.float32(self._log_half)
        return action, self._logp_numpy(mean, log_std, std, variable) - stretch

    def mode(self, params: NDArray[np.float32], mask: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        return self._squash(self._split_numpy(params)[0])

    def logp(self, params: Any, action: Any, mask: Any = None) -> Any:
        mean, log_std = self._split(params)
        self._check_action(action)
        centre, half = torch.from_numpy(self._centre).to(action), torch.from_numpy(self._half).to(action)
        unit = ((action - centre) / half).clamp(-self._EDGE, self._EDGE)
        stretch = torch.log1p(-unit * unit).sum(-1) + self._log_half
        return self._logp(mean, log_std, torch.atanh(unit)) - stretch

    def entropy(self, params: Any, mask: Any = None) -> Any:
        mean, log_std = self._split(params)
        nodes, weights = self._nodes.to(params), self._weights.to(params)
        variable = mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * nodes
        # log(1 - tanh²(u)), written so that it is finite for any u
        stretch = (2.0 * (math.log(2.0) - variable - F.softplus(-2.0 * variable)) * weights).sum((-1, -2))
        return super().entropy(params) + stretch

    def _squash(self, variable: NDArray[np.float32]) -> NDArray[np.float32]:
        action: NDArray[np.float32] = self._centre + self._half * np.tanh(variable)
        return action
