"""IPPO: each agent by PPO, as if it were alone, with one policy and one critic for all. https://arxiv.org/abs/2011.09533

What it has beside PPO is that agents see which one they are, and the entropy bonus of those who are not opponents.
"""

from __future__ import annotations

from dataclasses import dataclass

from ludus.learn.algorithms.ppo import PPO, PPOConfig
from ludus.options import option

__all__ = ["IPPO", "IPPOConfig"]


@dataclass(frozen=True, kw_only=True)
class IPPOConfig(PPOConfig):
    agent_ids: bool = option(True, help="agents see which one they are, one-hot in their observations")


class IPPO(PPO):
    Config = IPPOConfig
    is_cooperative = True
