"""The networks of the search benchmark: for both contestants the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludus.data.actions import Discrete
from ludus.envs.boards.connect_four import ConnectFour
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.learn.search.evaluator import Evaluate, PolicyEvaluator


class TwoTowers(nn.Module):
    """What somebody would write by hand for a 2x256 MLP: one for the policy, one for the value."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = _tower(7), _tower(1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.policy(obs), self.value(obs).squeeze(1)


class SmallCNN(nn.Module):
    """Two convolutions of 32 channels over the board, and a hidden layer for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten()
        )
        self.policy, self.value = nn.Linear(32 * 42, 7), nn.Linear(32 * 42, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(obs.view(-1, 2, 6, 7))
        return self.policy(features), self.value(features).squeeze(1)


def make(name: str, *, seed: int = 1) -> tuple[Evaluate, Any]:
    """What our search is given, and the module that the other calls."""
    torch.manual_seed(seed)
    if name == "cnn":
        network = SmallCNN().eval()
        return _of_module(network), network
    spec = PolicySpec(
        obs=ConnectFour.obs, action=Discrete(7), network=NetworkConfig(hidden=(256, 256), activation="relu")
    )
    policy = Policy(spec, seed=seed)
    with torch.no_grad():
        policy.model.policy_weight.mul_(100.0)  # as sharp as if it had learnt something
        towers = TwoTowers().eval()
        for tower, layers in zip((towers.policy, towers.value), policy.model.layers(), strict=True):
            for linear, (weight, bias) in zip(tower[::2], layers, strict=True):
                linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight.T)))
                linear.bias.copy_(torch.from_numpy(bias).view(-1))
    return PolicyEvaluator(policy, ConnectFour()), towers


def _tower(num_outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(84, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, num_outputs))


def _of_module(network: Any) -> Evaluate:
    def evaluate(obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        with torch.inference_mode():
            logits, value = network(torch.from_numpy(np.ascontiguousarray(obs)))
        return logits.numpy(), value.clamp(-1.0, 1.0).numpy()

    return evaluate
