"""A policy: a model, a distribution over actions and, if it has one, recurrent state.

spec = PolicySpec(obs=env.obs, action=env.action, network=NetworkConfig(hidden=(64, 64)))
policy = Policy(spec, seed=1)
action, logp, state = policy.act(obs, state, first, rng, mask)   # NumPy in, NumPy out: where envs are stepped
params, value = policy.evaluate(obs, state, first)                # tensors with gradients: where it is learnt from
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludus.data import nest as nests
from ludus.data.actions import ActionSpec
from ludus.data.lookup import load_attribute
from ludus.data.nest import Nest
from ludus.learn.networks import model as models
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.networks.weights import load_weights, weights_of
from ludus.learn.ops.distributions import Head, head_for, named_head
from ludus.learn.policies import runner as runners
from ludus.learn.policies.normaliser import Normaliser
from ludus.learn.policies.value_scale import ValueScale

__all__ = ["Policy", "PolicySpec"]


@dataclass(frozen=True, kw_only=True)
class PolicySpec:
    """Everything needed to build a policy anywhere; its weights come from elsewhere."""

    obs: Nest  # of `ArraySpec`s, of one row
    action: ActionSpec
    network: NetworkConfig = field(default_factory=NetworkConfig)
    squash: bool = False  # continuous actions pass through tanh to their bounds
    normalise_obs: bool = False
    normalise_returns: bool = False  # the network's values are in units of `Policy.value_scale`
    log_std: float = 0.0  # initial logarithm of the std of continuous actions
    head: str | None = None  # one of ours by name, or `module:Class`; None: the one that fits the action
    head_args: dict[str, Any] = field(default_factory=dict)  # of the head, beside the action
    has_value: bool = True  # the model estimates values; where not, those of vectors have one tower only


class Policy(nn.Module):
    """Built from its spec; the seed decides the initial weights.

    A user's model may have modes (dropout, running statistics): it is in that of evaluation, but for gradient steps.
    """

    exploration: torch.Tensor | None

    def __init__(self, spec: PolicySpec, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.head = _head(spec)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = models.build_model(spec.obs, self.head.num_outputs, spec.network, has_value=spec.has_value)
        self.state_spec: Nest = getattr(self.model, "state_spec", None)
        self.log_std = nn.Parameter(torch.full((self.head.num_free,), spec.log_std)) if self.head.num_free else None
        # How much is explored: set by the learner and part of the weights, so that it reaches those who act.
        num_explore = self.head.num_explore
        self.register_buffer("exploration", torch.zeros(num_explore) if num_explore else None)
        self.normaliser = Normaliser(spec.obs, spec.network) if spec.normalise_obs else None
        self.value_scale = ValueScale() if spec.normalise_returns else None
        self.has_modes = spec.network.model is not None  # ours have none
        if self.has_modes:
            self.eval()
        self._runner: runners.Runner | None = None  # of `act`

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes a runner of its own, for its own weights."""
        return {**self.__dict__, "_runner": None}

    @property
    def is_recurrent(self) -> bool:
        return self.state_spec is not None

    def initial_state(self, num_rows: int) -> Nest:
        """Zeros, as NumPy arrays; `None` if there is no state."""
        return nests.map(lambda leaf: None if leaf is None else leaf.allocate((num_rows,)), self.state_spec)

    def evaluate(self, obs: Nest, state: Nest = None, first: torch.Tensor | None = None) -> tuple[Any, Any]:
        """Parameters of the distribution and values, in units of `value_scale` if there is one.

        A recurrent policy takes `[T, R, ...]`, others any one axis.
        """
        params, value, _ = self.advance(obs, state, first)
        return params, value

    def values(self, obs: Nest) -> Any:
        """Values as `evaluate` has them, without gradients, of a policy without state.

        A model may have `values_only` to do less.
        """
        obs = self.scaled(obs)
        quick = getattr(self.model, "values_only", None)
        return quick(obs) if quick is not None else self.model(obs)[1]

    def advance(self, obs: Nest, state: Nest, first: torch.Tensor | None) -> tuple[Any, Any, Nest]:
        """`evaluate`, and the state afterwards."""
        obs = self.scaled(obs)
        if self.is_recurrent:
            outputs, value, state = self.model(obs, state, first)
        else:
            outputs, value = self.model(obs)
        common = [each for each in (self.log_std, self.exploration) if each is not None]
        if common:
            outputs = torch.cat([outputs, *(each.expand(*outputs.shape[:-1], -1) for each in common)], dim=-1)
        return outputs, value, state

    def outputs(self, obs: Nest) -> Any:
        """What the model alone gives for a policy without state: `params` without what is the same for all rows."""
        return self.model(self.scaled(obs))[0]

    def scaled(self, obs: Nest) -> Nest:
        """Observations as the model is given them."""
        return obs if self.normaliser is None else self.normaliser(obs)

    def act(
        self,
        obs: Nest,
        state: Nest,
        first: NDArray[np.bool_],
        rng: np.random.Generator,
        mask: NDArray[np.bool_] | None = None,
        *,
        greedy: bool = False,
        exponents: NDArray[np.float32] | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32], Nest]:
        """One step of N rows: an action for each, the log-probability with which it was chosen, the state afterwards.

        `greedy` takes the mode of the distribution; otherwise `rng` draws from it, and rows may explore more or less
        by `exponents` `[N]`.
        """
        if self._runner is None:
            self._runner = self.runner()
        params, state = self._runner(obs, state, first)
        if exponents is not None:
            params = self.head.spread_exploration(params, exponents)
        return *self.head.choose(params, rng, mask, greedy=greedy), state

    def runner(self) -> runners.Runner:
        """The forward pass for choosing actions, the fastest for this model. It reads this policy's own weights."""
        return runners.runner_for(self)

    def weights(self) -> dict[str, NDArray[Any]]:
        """All parameters and buffers by name: copies, as NumPy arrays."""
        return weights_of(self)

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take weights over, in place. Raises `DataError` unless names and shapes are this policy's."""
        load_weights(self, weights)


def _head(spec: PolicySpec) -> Head:
    if spec.head is None:
        return head_for(spec.action, squash=spec.squash)
    if ":" not in spec.head:
        return named_head(spec.head, spec.action, **spec.head_args)
    head: Head = load_attribute(spec.head, what="head")(spec.action, **spec.head_args)
    return head
