"""Models: from observations to the numbers of a policy and a value.

The contract of a model, ours or a user's, is that of an `nn.Module` with

    forward(obs) -> (outputs [N, num_outputs], value [N])

for a nest of tensors `[N, ...]`, with any N. A recurrent model has an attribute `state_spec`, a nest of `ArraySpec`s
of one row, and takes time-major observations `[T, R, ...]`:

    forward(obs, state, first) -> (outputs [T, R, num_outputs], value [T, R], state)

`state` is a nest of tensors `[R, ...]`, zeros in the beginning; that of rows where `first[t]` (`[T, R]`, bool) is true
is zeroed before step `t`. What the outputs mean is for `ops/distributions` to say.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import nn

from ludus import options
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError
from ludus.learn.networks import user_model
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.networks.encoder import IMAGE_ENCODERS, Encoder, is_image
from ludus.learn.networks.mlp import POLICY_GAIN, VALUE_GAIN, dense
from ludus.learn.networks.recurrent import Recurrent
from ludus.learn.networks.stacked import SingleMLP
from ludus.learn.networks.twin import TwinMLP

__all__ = ["ActorCritic", "RecurrentActorCritic", "build_model", "is_vector"]


def build_model(obs: Nest, num_outputs: int, config: NetworkConfig, *, has_value: bool = True) -> Any:
    """A model for observations of this spec (of one row). torch's random state decides the weights it begins with.

    Where nobody needs values (`has_value=False`), they cost nothing: they are 0, or made from the policy's features.

    Raises `ConfigError` if the configuration does not fit the observations, or a user's model not the contract.
    """
    config = options.replace(config, dataclasses.asdict(config))  # one written in code has not been checked yet
    if config.model is not None:
        return user_model.load(config.model, obs, num_outputs)
    is_recurrent = config.recurrent != "none"
    if is_recurrent and config.shared is False:
        raise ConfigError("shared=no does not go with a recurrent network: its state serves policy and value both.")
    shared = config.shared
    if shared is None:
        reads_images = config.encoder != "mlp" and any(is_image(leaf) for leaf in nests.leaves(obs))
        shared = is_recurrent or reads_images or config.encoder in IMAGE_ENCODERS or not has_value
    if is_recurrent:
        return RecurrentActorCritic(obs, num_outputs, config)
    if config.hidden != () and config.encoder in ("auto", "mlp") and is_vector(obs):
        arguments = (obs.shape[0], num_outputs, config.hidden_for(obs.shape[0]), config.activation or "tanh")
        if not has_value:
            return SingleMLP(*arguments)
        if not shared:
            return TwinMLP(*arguments)
    return ActorCritic(obs, num_outputs, config, shared=shared)


def is_vector(obs: Nest) -> bool:
    """Whether it is one float32 vector, which stacked MLPs read."""
    return isinstance(obs, ArraySpec) and len(obs.shape) == 1 and obs.dtype == np.float32


class ActorCritic(nn.Module):
    """Encoded observations and two dense heads; `shared` or not, one encoder or two."""

    def __init__(self, obs: Nest, num_outputs: int, config: NetworkConfig, *, shared: bool) -> None:
        super().__init__()
        self.encoder = Encoder(obs, config)
        self.value_encoder = None if shared else Encoder(obs, config)
        self.policy = dense(self.encoder.num_features, num_outputs, POLICY_GAIN)
        self.value = dense(self.encoder.num_features, 1, VALUE_GAIN)

    def forward(self, obs: Nest) -> tuple[Any, Any]:
        features = self.encoder(obs)
        of_value = features if self.value_encoder is None else self.value_encoder(obs)
        return self.policy(features), self.value(of_value).squeeze(-1)

    def rescale_value(self, scale: float, shift: float) -> None:
        """Values become `scale * value + shift`."""
        _rescale(self.value, scale, shift)

    def towers(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """None that hold both towers, and the parameters of the value alone: none if they share a body."""
        if self.value_encoder is None:
            return [], []
        return [], [*self.value_encoder.parameters(), *self.value.parameters()]


class RecurrentActorCritic(nn.Module):
    """Encoded observations, state, and two dense heads."""

    def __init__(self, obs: Nest, num_outputs: int, config: NetworkConfig) -> None:
        super().__init__()
        self.encoder = Encoder(obs, config)
        self.recurrent = Recurrent(config.recurrent, self.encoder.num_features, config.recurrent_size)
        self.state_spec = self.recurrent.state_spec
        self.policy = dense(config.recurrent_size, num_outputs, POLICY_GAIN)
        self.value = dense(config.recurrent_size, 1, VALUE_GAIN)

    def forward(self, obs: Nest, state: Nest, first: Any) -> tuple[Any, Any, Nest]:
        num_steps, num_rows = first.shape
        features = self.encoder(nests.map(lambda leaf: leaf.flatten(0, 1), obs))
        y, state = self.recurrent(features.view(num_steps, num_rows, -1), state, first)
        return self.policy(y), self.value(y).squeeze(-1), state

    def rescale_value(self, scale: float, shift: float) -> None:
        """Values become `scale * value + shift`."""
        _rescale(self.value, scale, shift)


@torch.no_grad()
def _rescale(layer: Any, scale: float, shift: float) -> None:
    layer.weight.mul_(scale)
    layer.bias.mul_(scale).add_(shift)
