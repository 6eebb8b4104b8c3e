"""A2C: one gradient step on each batch, along the advantage. https://arxiv.org/abs/1602.01783"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.learn.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from ludus.learn.algorithms.algorithm import View
from ludus.learn.algorithms.targets import gae_targets
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.data.segment import Segment

__all__ = ["A2C", "A2CConfig"]


@dataclass(frozen=True, kw_only=True)
class A2CConfig(ActorCriticConfig):
    num_envs: int = option(16, help="environments of one simulator, in all its groups", minimum=1)
    num_steps: int = option(8, help="steps of each environment in one segment", minimum=1)
    learning_rate: float = option(7e-4, help="step size of Adam", minimum=0.0)
    normalise_advantage: bool = option(False, help="bring advantages to mean 0 and std 1")


class A2C(ActorCritic[A2CConfig]):
    Config = A2CConfig

    def targets(self, segment: Segment, value: Tensor, reduce: Any = None) -> dict[str, Tensor]:
        config = self.config
        return gae_targets(
            segment, value, gamma=config.gamma, lam=config.lam, is_normalised=config.normalise_advantage, reduce=reduce
        )

    def loss(self, view: View) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy = view.head.logp_and_entropy(view.params, view.action, view.mask)
        policy_loss = -view.mean(view.targets["advantage"] * logp)
        value_loss = 0.5 * view.mean((view.value - view.targets["value_target"]).square())
        entropy = view.mean(entropy)
        loss = policy_loss + self.config.value_coef * value_loss - self.config.entropy_coef * entropy
        return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
