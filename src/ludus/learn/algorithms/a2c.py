"""A2C: one gradient step on each batch, along the advantage. https://arxiv.org/abs/1602.01783"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.learn import ops
from ludus.learn.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from ludus.learn.algorithms.algorithm import View
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.learn.algorithms.sample import SampleView

__all__ = ["A2C", "A2CConfig"]


@dataclass(frozen=True, kw_only=True)
class A2CConfig(ActorCriticConfig):
    num_envs: int = option(16, help="environments of one simulator, in all its groups", minimum=1)
    num_steps: int = option(8, help="steps of each environment in one segment", minimum=1)
    learning_rate: float = option(7e-4, help="learning rate of Adam", minimum=0.0)
    normalise_advantage: bool = option(False, help="normalise advantages to mean 0 and std 1")


class A2C(ActorCritic[A2CConfig]):
    Config = A2CConfig
    usual_entropy_coef = 0.0

    def targets(self, sample: SampleView) -> dict[str, Tensor]:
        config = self.config
        return sample.gae_targets(gamma=config.gamma, lam=config.lam, is_normalised=config.normalise_advantage)

    def loss(self, view: View) -> tuple[Tensor, dict[str, Any]]:
        config = self.config
        logp, entropy = view.head.logp_and_entropy(view.params, view.action, view.mask)
        return ops.policy_gradient_loss(
            logp, entropy, view.value, **view.targets,
            value_coef=config.value_coef, entropy_coef=self.entropy_coef, weight=view.weight,
        )  # fmt: skip
