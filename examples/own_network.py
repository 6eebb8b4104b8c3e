"""A network of one's own: any `nn.Module` that gives the policy's outputs and a value for each observation.

python examples/own_network.py
ludus train ppo CartPole-v1 --model examples/own_network.py:build
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import torch
from torch import nn

import ludus


class WaveNetwork(nn.Module):
    """Reads sines of the observation at several frequencies, so that two layers see fine differences."""

    def __init__(self, num_numbers: int, num_outputs: int, *, num_waves: int = 4, width: int = 64) -> None:
        super().__init__()
        self.register_buffer("frequencies", 2.0 ** torch.arange(num_waves) * math.pi / 4)
        num_features = num_numbers * (1 + 2 * num_waves)
        self.body = nn.Sequential(nn.Linear(num_features, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.policy = nn.Linear(width, num_outputs)
        self.value = nn.Linear(width, 1)
        nn.init.normal_(self.policy.weight, std=0.01)  # the first actions are all but uniform

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Observations `[N, num_numbers]` → outputs `[N, num_outputs]` and values `[N]`, for any N."""
        waves = (obs.unsqueeze(-1) * self.frequencies).flatten(1)
        features = self.body(torch.cat([obs, waves.sin(), waves.cos()], dim=1))
        return self.policy(features), self.value(features).squeeze(-1)


def build(obs: Any, num_outputs: int) -> nn.Module:
    """`--model` names this. `obs` is the spec of one observation, with its `shape` and `dtype`."""
    return WaveNetwork(math.prod(obs.shape), num_outputs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60_000)
    run = ludus.train("ppo", "CartPole-v1", model=f"{__file__}:build", steps=parser.parse_args().steps, seed=1)
    print(f"return {run.result['eval_return_mean']:.1f}; {type(run.policy.policy.model).__name__}; {run.trial_dir}")
