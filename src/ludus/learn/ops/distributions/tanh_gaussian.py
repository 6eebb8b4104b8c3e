"""A squashed Gaussian whose mean and std are both the model's: what SAC learns. https://arxiv.org/abs/1812.05905"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ludus.data.actions import Continuous
from ludus.learn.ops.distributions.action_bounds import ActionBounds
from ludus.learn.ops.distributions.gaussian import SquashedGaussian
from ludus.learn.ops.distributions.head import check_params

__all__ = ["TanhGaussian"]

_MIN_LOG_STD, _MAX_LOG_STD = -20.0, 2.0
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class TanhGaussian(SquashedGaussian):
    """`params` are means, logs of the std, and what is explored by: the share of uniformly random actions, and a key.

    With a key of 0 random actions are new at each step; with another they are those that the key gave before, so that
    they can be held for several steps. `logp` is that of the mixture; `entropy` and `kl` are of the Gaussian alone.
    """

    num_explore = 2

    def __init__(self, action: Continuous) -> None:
        self.bounds = ActionBounds(action)
        super().__init__(action)
        self.num_free = 0
        self.num_outputs = 2 * self._size
        self.num_params = self.num_outputs + self.num_explore

    def rsample(self, outputs: torch.Tensor, generator: torch.Generator | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions `[N, size]` in units of their bounds, and their log-probability in these units, with gradients.

        `outputs` `[N, num_outputs]` are those of the model.
        """
        check_params(outputs, self.num_outputs)
        noise = torch.empty(len(outputs), self._size, device=outputs.device).normal_(generator=generator)
        unit, logp = _Sampled.apply(outputs, noise)
        return unit, logp

    def sample(
        self, params: NDArray[np.float32], rng: np.random.Generator, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        action, logp = super().sample(params, rng, mask)
        share = params[:, -2]
        if not share.any():
            return action, logp
        is_random = rng.random(len(params), np.float32) < share
        action = np.where(is_random[:, None], self.bounds.random(params[:, -1], rng), action)
        logp = self.logp(torch.from_numpy(params), torch.from_numpy(action)).numpy()
        return action, logp

    def logp(self, params: Any, action: Any, mask: Any = None) -> Any:
        logp, share = super().logp(params, action), params[..., -2]
        return torch.logaddexp(torch.log(share) - self.bounds.log_volume, torch.log1p(-share) + logp)

    def _split_numpy(self, params: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        check_params(params, self.num_params)
        size = self._size
        return params[:, :size], params[:, size : 2 * size].clip(_MIN_LOG_STD, _MAX_LOG_STD)

    def _split(self, params: Any) -> tuple[Any, Any]:
        check_params(params, self.num_params)
        size = self._size
        return params[..., :size], params[..., size : 2 * size].clamp(_MIN_LOG_STD, _MAX_LOG_STD)


class _Sampled(torch.autograd.Function):
    """`unit = tanh(u)`, `u = mean + std * noise`, and the log-probability of it, with the gradient written out."""

    @staticmethod
    def forward(context: Any, outputs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, raw = outputs.chunk(2, -1)
        log_std = raw.clamp(_MIN_LOG_STD, _MAX_LOG_STD)
        offset = log_std.exp().mul_(noise)
        u = mean + offset
        unit = u.tanh()
        # log(1 - tanh²(u)) = 2 (log 2 - u - softplus(-2 u)), finite for any u
        stretch = F.softplus(u * -2.0).add_(u).sub_(math.log(2.0))
        terms = log_std.addcmul(noise, noise, value=0.5).sub_(stretch, alpha=2.0)
        context.save_for_backward(raw, offset, unit)
        return unit, terms.sum(-1).add_(noise.shape[-1] * _HALF_LOG_TAU).neg_()

    @staticmethod
    def backward(context: Any, of_unit: torch.Tensor, of_logp: torch.Tensor) -> tuple[torch.Tensor, None]:
        """d unit / du = 1 - unit²; d logp / du = 2 unit; d u / d log_std = std * noise; the rest of logp: -log_std."""
        raw, offset, unit = context.saved_tensors
        of_logp = of_logp.unsqueeze(-1)
        of_u = of_unit.addcmul(of_unit * unit, unit, value=-1.0).addcmul_(of_logp, unit, value=2.0)
        of_log_std = torch.mul(of_u, offset).sub_(of_logp)
        of_log_std *= (raw >= _MIN_LOG_STD) & (raw <= _MAX_LOG_STD)
        return torch.cat([of_u, of_log_std], -1), None
