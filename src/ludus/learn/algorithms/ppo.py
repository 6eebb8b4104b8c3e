"""PPO: several passes over each batch, with the ratio to the old policy clipped. https://arxiv.org/abs/1707.06347"""

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

__all__ = ["PPO", "PPOConfig"]


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ActorCriticConfig):
    num_epochs: int = option(6, help="passes over each batch", minimum=1)
    minibatch_size: int = option(128, help="environment steps of one gradient step; 0: the whole batch", minimum=0)
    learning_rate: float = option(5e-4, help="learning rate of Adam", minimum=0.0)
    clip: float = option(0.2, help="clip range of the probability ratio", minimum=0.0)
    normalise_advantage: bool = option(True, help="normalise advantages to mean 0 and std 1")


class PPO(ActorCritic[PPOConfig]):
    Config = PPOConfig

    def targets(self, sample: SampleView) -> dict[str, Tensor]:
        config = self.config
        return sample.gae_targets(gamma=config.gamma, lam=config.lam, is_normalised=config.normalise_advantage)

    def loss(self, view: View) -> tuple[Tensor, dict[str, Any]]:
        config = self.config
        return ops.clipped_loss(
            view.head, view.params, view.value, action=view.action, logp=view.logp, **view.targets, clip=config.clip,
            value_coef=config.value_coef, entropy_coef=self.entropy_coef, mask=view.mask, weight=view.weight,
        )  # fmt: skip
