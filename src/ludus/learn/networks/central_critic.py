"""What sees the whole env in training: a reader of it, and a critic.

    reader = TeamReader(obs, num_agents=3, global_state=env.global_state)
    value = CentralCritic(reader, network)(seen)

What is seen is the global state of the env or, where it has none, the observations of all agents.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.networks.encoder import Encoder
from ludus.learn.networks.mlp import MLP, VALUE_GAIN, dense

__all__ = ["CentralCritic", "TeamReader"]


class TeamReader(nn.Module):
    """`forward(seen) -> features [N, num_features]`: numbers as they are, choices as one-hots, images by a CNN."""

    def __init__(self, obs: Nest, *, num_agents: int, global_state: Nest, encoder: str = "auto") -> None:
        super().__init__()
        self._is_by_agent = global_state is None
        self.encoder = Encoder(obs if self._is_by_agent else global_state, NetworkConfig(encoder=encoder, hidden=()))
        self.num_features = self.encoder.num_features * (num_agents if self._is_by_agent else 1)

    def forward(self, seen: Nest) -> Any:
        if not self._is_by_agent:
            return self.encoder(seen)
        num_envs = len(nests.leaves(seen)[0])
        return self.encoder(nests.map(lambda leaf: leaf.flatten(0, 1), seen)).view(num_envs, self.num_features)


class CentralCritic(nn.Module):
    """`forward(seen) -> value [N]`."""

    def __init__(self, reader: TeamReader, config: NetworkConfig) -> None:
        super().__init__()
        self.reader = reader
        hidden = config.hidden_for(reader.num_features)
        self.mlp = MLP(reader.num_features, hidden, config.activation or "tanh")
        self.value = dense(self.mlp.num_features, 1, VALUE_GAIN)

    def forward(self, seen: Nest) -> Any:
        return self.value(self.mlp(self.reader(seen))).squeeze(-1)

    @torch.no_grad()
    def rescale_value(self, scale: float, shift: float) -> None:
        self.value.weight.mul_(scale)
        self.value.bias.mul_(scale).add_(shift)
