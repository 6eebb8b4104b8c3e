"""PPO: several passes over each batch, with the ratio to the old policy clipped. https://arxiv.org/abs/1707.06347"""

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

__all__ = ["PPO", "PPOConfig", "clipped_policy_loss"]


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ActorCriticConfig):
    num_epochs: int = option(6, help="passes over each batch", minimum=1)
    minibatch_size: int = option(128, help="environment steps of one gradient step; 0: the whole batch", minimum=0)
    learning_rate: float = option(5e-4, help="step size of Adam", minimum=0.0)
    entropy_coef: float = option(0.01, help="weight of the entropy bonus", minimum=0.0)
    clip: float = option(0.2, help="how far the ratio to the old policy counts", minimum=0.0)
    normalise_advantage: bool = option(True, help="bring advantages to mean 0 and std 1")


class PPO(ActorCritic[PPOConfig]):
    Config = PPOConfig

    def targets(self, segment: Segment, value: Tensor, reduce: Any = None) -> dict[str, Tensor]:
        config = self.config
        return gae_targets(
            segment, value, gamma=config.gamma, lam=config.lam, is_normalised=config.normalise_advantage, reduce=reduce
        )

    def loss(self, view: View) -> tuple[Tensor, dict[str, Any]]:
        config = self.config
        return clipped_policy_loss(
            view, clip=config.clip, value_coef=config.value_coef, entropy_coef=config.entropy_coef
        )


def clipped_policy_loss(
    view: View, *, clip: float, value_coef: float, entropy_coef: float
) -> tuple[Tensor, dict[str, Any]]:
    """The clipped surrogate, the value's squared error and the entropy, by `advantage` and `value_target`."""
    from ludus.learn.ops import clipped_loss as by_hand  # here, because it loads torch

    advantage = view.targets["advantage"]
    if view.mask is None and view.weight is None and by_hand.is_for(view.head, view.params):
        return by_hand.clipped_loss(
            view.params, view.value, action=view.action, logp=view.logp, **view.targets,
            clip=clip, value_coef=value_coef, entropy_coef=entropy_coef,
        )  # fmt: skip
    logp, entropy = view.head.logp_and_entropy(view.params, view.action, view.mask)
    log_ratio = logp - view.logp
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    policy_loss = -view.mean((advantage * ratio).minimum(advantage * clipped))
    value_loss = 0.5 * view.mean((view.value - view.targets["value_target"]).square())
    entropy = view.mean(entropy)
    loss = policy_loss + value_coef * value_loss - entropy_coef * entropy
    return loss, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "kl": view.mean((ratio - log_ratio).detach() - 1.0),  # the 1 inside: a share of it on each rank
    }
