"""The model: what the actor asks and the trainer trains. A plain torch module; its inputs have a batch axis."""

from __future__ import annotations

import torch
from torch import nn

NUM_FEATURES = 6
NUM_MOVES = 3


class PongModel(nn.Module):
    """Features to logits of the three moves, and the value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(NUM_FEATURES, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.moves = nn.Linear(64, NUM_MOVES)
        self.value = nn.Linear(64, 1)
        nn.init.orthogonal_(self.moves.weight, 0.01)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(features)
        return self.moves(hidden), self.value(hidden).squeeze(-1)
