"""Critics: several estimates of what actions are worth, each with weights of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ludus.data.actions import ActionSpec, Continuous, Discrete
from ludus.data.nest import Nest
from ludus.errors import ConfigError
from ludus.learn.networks import user_model
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.networks.encoder import Encoder
from ludus.learn.networks.mlp import MLP, dense
from ludus.learn.networks.model import is_vector
from ludus.learn.networks.stacked import StackedMLP

__all__ = ["Critics"]

_NUM_FEATURES = 256  # that a model of the user's own gives to a critic of continuous actions


class Critics(nn.Module):
    """K critics of `forward(obs, action) -> [K, N]`, or of discrete actions `forward(obs) -> [K, N, choices]`.

    Observations are as the policy's model is given them. Continuous actions are in units of their bounds.
    """

    def __init__(self, obs: Nest, action: ActionSpec, config: NetworkConfig, *, num_critics: int = 2) -> None:
        super().__init__()
        if config.recurrent != "none":
            raise ConfigError(
                "critics of single transitions have no recurrent state. Set recurrent=none, or use ppo, which has it."
            )
        if not isinstance(action, Continuous | Discrete):
            raise ConfigError(f"critics know continuous actions and single choices; these are {action}. Use ppo.")
        size = action.size if isinstance(action, Continuous) else 0
        self._has_action = size > 0
        num_outputs = 1 if isinstance(action, Continuous) else action.num_choices
        self.stacked: StackedMLP | None = None
        self.towers = nn.ModuleList()
        if config.model is None and config.encoder in ("auto", "mlp") and is_vector(obs):
            hidden = config.hidden_for(obs.shape[0])
            self.stacked = StackedMLP(
                num_critics, obs.shape[0] + size, num_outputs, hidden, config.activation or "tanh"
            )
        else:
            self.towers.extend(_Tower(obs, size, num_outputs, config) for _ in range(num_critics))

    def forward(
        self,
        obs: Nest,
        action: torch.Tensor | None = None,
        *,
        is_frozen: bool = False,
        num_critics: int | None = None,
    ) -> Any:
        """`is_frozen`: gradients go to the action alone. `num_critics`: of the first ones only."""
        if self.stacked is not None:
            inputs = torch.cat([obs, action], -1) if self._has_action else obs
            q = self.stacked(inputs, is_frozen=is_frozen, num_towers=num_critics)
        else:
            towers = self.towers if num_critics is None else self.towers[:num_critics]
            q = torch.stack([_call(tower, obs, action, is_frozen=is_frozen) for tower in towers])
        return q.squeeze(-1) if self._has_action else q


def _call(tower: nn.Module, obs: Nest, action: torch.Tensor | None, *, is_frozen: bool) -> Any:
    if not is_frozen:
        return tower(obs, action)
    frozen = {name: parameter.detach() for name, parameter in tower.named_parameters()}
    return torch.func.functional_call(tower, frozen, (obs, action))


class _Tower(nn.Module):
    """One critic of anything that an encoder, or a model of the user's own, reads."""

    def __init__(self, obs: Nest, size: int, num_outputs: int, config: NetworkConfig) -> None:
        super().__init__()
        self._is_own = config.model is not None
        self.encoder: Any
        if config.model is not None:
            num_features = _NUM_FEATURES
            self.encoder = user_model.load(config.model, obs, num_features)
        else:
            self.encoder = Encoder(obs, config)
            num_features = self.encoder.num_features
        num_inputs = num_features + size
        self.mlp = MLP(num_inputs, config.hidden_for(num_inputs), config.activation or "tanh")
        self.value = dense(self.mlp.num_features, num_outputs, 1.0)

    def forward(self, obs: Nest, action: torch.Tensor | None) -> Any:
        features = self.encoder(obs)[0] if self._is_own else self.encoder(obs)
        return self.value(self.mlp(features if action is None else torch.cat([features, action], -1)))
