"""APPO: V-trace's targets with PPO's clipping: several passes over samples of older versions stay safe.

https://arxiv.org/abs/1912.00167 compares such mixtures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ludus.learn.algorithms.algorithm import Algorithm, View
from ludus.learn.algorithms.impala import ImpalaConfig
from ludus.learn.algorithms.targets import vtrace_targets
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["APPO", "APPOConfig"]


@dataclass(frozen=True, kw_only=True)
class APPOConfig(ImpalaConfig):
    num_epochs: int = option(2, help="passes over each batch", minimum=1)
    minibatch_size: int = option(256, help="environment steps of one gradient step; 0: the whole batch", minimum=0)
    clip: float = option(0.2, help="how far the ratio to the old policy counts", minimum=0.0)
    normalise_advantage: bool = option(True, help="bring advantages to mean 0 and deviation 1")


class APPO(Algorithm[APPOConfig]):
    Config = APPOConfig
    needs_time = True
    default_flow = "async"

    def loss(self, view: View) -> tuple[Tensor, dict[str, Tensor]]:
        config = self.config
        logp, entropy = view.head.logp_and_entropy(view.params, view.action, view.mask)
        value_target, advantage = vtrace_targets(
            view, logp, gamma=config.gamma, lam=config.lam, rho_max=config.rho_max, c_max=config.c_max, weighted=False
        )  # the ratio below is the importance weight: one in the advantage, too, would count it twice
        if config.normalise_advantage:
            advantage = view.normalise(advantage)
        ratio = (logp - view.logp).exp()
        clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
        policy_loss = -view.mean((advantage * ratio).minimum(advantage * clipped))
        value_loss = 0.5 * view.mean((view.value[:-1] - value_target).square())
        entropy = view.mean(entropy)
        loss = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "ratio": view.mean(ratio.detach()),
        }
