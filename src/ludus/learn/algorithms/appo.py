"""APPO: V-trace's targets with PPO's clipped loss: several passes over samples of older versions stay safe.

Two policies are kept apart: the one that acted, which samples are weighted against, and the one that the update began
with, which the clip is measured from. Measured from the former, a few versions of lag would use up all of the clip.
But each update of a lag has the clip again, and all of them learn from one policy's steps: `max_ratio` bounds what they
do together.
https://arxiv.org/abs/1912.00167, https://arxiv.org/abs/2110.00641
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.learn import ops
from ludus.learn.algorithms.actor_critic import ActorCritic
from ludus.learn.algorithms.algorithm import View
from ludus.learn.algorithms.impala import ImpalaConfig
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.learn.algorithms.sample import SampleView

__all__ = ["APPO", "APPOConfig"]

_MAX_LOG_RATIO = 20.0  # neither the ratio nor its inverse overflows; both are cut off far below


@dataclass(frozen=True, kw_only=True)
class APPOConfig(ImpalaConfig):
    num_epochs: int = option(2, help="passes over each batch", minimum=1)
    minibatch_size: int = option(128, help="environment steps of one gradient step; 0: the whole batch", minimum=0)
    clip: float = option(0.2, help="clip range of the probability ratio", minimum=0.0)


class APPO(ActorCritic[APPOConfig]):
    Config = APPOConfig
    default_flow = "async"

    def targets(self, sample: SampleView) -> dict[str, Tensor]:
        config, segment = self.config, sample.segment
        value, logp = sample.values_and_logp()
        value_target, advantage = ops.vtrace(
            logp, segment.logp, segment.reward, value, *segment.ends,
            gamma=config.gamma, lam=config.lam, rho_max=config.rho_max, c_max=config.c_max, weighted=False,
        )  # fmt: skip
        active = segment.active[:-1]
        if config.normalise_advantage:
            advantage = ops.normalise(advantage, active, sample.reduce)
        # Weighted after it is normalised: the mean of weighted advantages is not that of any policy.
        log_ratio = (logp - segment.logp).where(active, logp.new_zeros(()))
        ratio = log_ratio.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
        return {
            "advantage": advantage * ratio.clamp(max=config.rho_max) * active,
            "value_target": value_target,
            "logp": logp.where(active, segment.logp),
            "lowest": (1.0 / (config.max_ratio * ratio)).clamp(min=1.0 - config.clip),
            "highest": (config.max_ratio / ratio).clamp(max=1.0 + config.clip),
        }

    def loss(self, view: View) -> tuple[Tensor, dict[str, Any]]:
        config, targets = self.config, view.targets
        return ops.clipped_loss(
            view.head, view.params, view.value, action=view.action, logp=targets["logp"],
            advantage=targets["advantage"], value_target=targets["value_target"],
            clip=(targets["lowest"], targets["highest"]),
            value_coef=config.value_coef, entropy_coef=self.entropy_coef, mask=view.mask, weight=view.weight,
        )  # fmt: skip
