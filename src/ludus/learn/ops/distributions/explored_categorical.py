"""A choice by logits, or with some probability any allowed one: what discrete SAC acts by."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.data.actions import ActionSpec, Discrete
from ludus.errors import ConfigError
from ludus.learn.ops.distributions.categorical import Categorical
from ludus.learn.ops.distributions.head import check_params

__all__ = ["ExploredCategorical"]


class ExploredCategorical(Categorical):
    """`params` are logits, the share of uniformly random choices, and a number that is not used.

    `logp` is that of the mixture; `entropy` and `kl` are of the logits alone.
    """

    num_explore = 2  # as many as the heads of continuous actions have

    def __init__(self, action: ActionSpec) -> None:
        if not isinstance(action, Discrete):
            raise ConfigError(f"one choice of several is needed here; these actions are {action}. Use ppo.")
        super().__init__(action.num_choices)
        self.num_params = self.num_outputs + self.num_explore
        self._logits = Categorical(action.num_choices)

    def sample(
        self, params: NDArray[np.float32], rng: np.random.Generator, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        logits, share = self._split(params)
        if not share.any():
            return self._logits.sample(logits, rng, mask)
        is_random = rng.random(len(params), np.float32) < share
        action, _ = self._logits.sample(np.where(is_random[:, None], np.float32(0.0), logits), rng, mask)
        tensors = (None if each is None else torch.from_numpy(each) for each in (params, action, mask))
        return action, self.logp(*tensors).numpy()

    def mode(self, params: NDArray[np.float32], mask: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        return self._logits.mode(self._split(params)[0], mask)

    def logp(self, params: Any, action: Any, mask: Any = None) -> Any:
        logits, share = self._split(params)
        num_allowed = self.num_outputs if mask is None else mask.sum(-1)
        of_random = torch.log(share / num_allowed)
        return torch.logaddexp(of_random, torch.log1p(-share) + self._logits.logp(logits, action, mask))

    def entropy(self, params: Any, mask: Any = None) -> Any:
        return self._logits.entropy(self._split(params)[0], mask)

    def logp_and_entropy(self, params: Any, action: Any, mask: Any = None) -> tuple[Any, Any]:
        return self.logp(params, action, mask), self.entropy(params, mask)

    def kl(self, params_old: Any, params_new: Any, mask: Any = None) -> Any:
        return self._logits.kl(self._split(params_old)[0], self._split(params_new)[0], mask)

    def _split(self, params: Any) -> tuple[Any, Any]:
        check_params(params, self.num_params)
        return params[..., : self.num_outputs], params[..., -2]
