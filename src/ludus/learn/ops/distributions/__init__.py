"""Distributions over actions: chosen with NumPy, learnt from with torch.

head = head_for(Discrete(4))
action, logp = head.choose(logits, rng, mask, greedy=False)    # NumPy, where envs are stepped
logp, entropy = head.logp_and_entropy(logits, action, mask)    # torch, where the policy learns
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus import spelling
from ludus.data.actions import ActionSpec, Continuous, Discrete, MultiDiscrete
from ludus.errors import ConfigError
from ludus.learn.ops.distributions.categorical import Categorical, MultiCategorical
from ludus.learn.ops.distributions.epsilon_greedy import EpsilonGreedy
from ludus.learn.ops.distributions.explored_categorical import ExploredCategorical
from ludus.learn.ops.distributions.gaussian import DiagGaussian, SquashedGaussian
from ludus.learn.ops.distributions.head import FORBIDDEN, Head
from ludus.learn.ops.distributions.noisy_tanh import NoisyTanh
from ludus.learn.ops.distributions.returns import CategoricalReturns, QuantileReturns
from ludus.learn.ops.distributions.tanh_gaussian import TanhGaussian

__all__ = [
    "FORBIDDEN",
    "Categorical",
    "CategoricalReturns",
    "DiagGaussian",
    "EpsilonGreedy",
    "ExploredCategorical",
    "Head",
    "MultiCategorical",
    "NoisyTanh",
    "QuantileReturns",
    "SquashedGaussian",
    "TanhGaussian",
    "head_for",
    "named_head",
]

_BY_NAME: dict[str, Callable[..., Head]] = {
    "epsilon_greedy": EpsilonGreedy,
    "explored_categorical": ExploredCategorical,
    "noisy_tanh": NoisyTanh,
    "tanh_gaussian": TanhGaussian,
    "categorical_returns": CategoricalReturns,
    "quantile_returns": QuantileReturns,
}


def head_for(action: ActionSpec, *, squash: bool = False) -> Head:
    """The distribution for a kind of action. `squash` keeps continuous ones within their bounds, of which each must
    have two; it says nothing about discrete ones. Raises `ConfigError`.
    """
    match action:
        case Discrete(num_choices):
            return Categorical(num_choices)
        case MultiDiscrete(sizes):
            return MultiCategorical(sizes)
        case Continuous():
            return SquashedGaussian(action) if squash else DiagGaussian(action)


def named_head(name: str, action: ActionSpec, **settings: Any) -> Head:
    """A head of ours that an algorithm asks for by its name. Raises `ConfigError`."""
    if name not in _BY_NAME:
        raise ConfigError(f"there is no head {name!r}. {spelling.nearest(name, _BY_NAME)}")
    return _BY_NAME[name](action, **settings)
