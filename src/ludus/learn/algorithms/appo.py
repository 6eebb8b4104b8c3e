"""APPO: V-trace's targets with PPO's clipped loss: several passes over samples of older versions stay safe.

Two policies are kept apart: the one that acted, which samples are weighted against, and the one that the update began
with, which the clip is measured from. Measured from the former, a few versions of lag would use up all of the clip.
https://arxiv.org/abs/1912.00167, https://arxiv.org/abs/2110.00641
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.learn.algorithms.actor_critic import ActorCritic
from ludus.learn.algorithms.algorithm import View
from ludus.learn.algorithms.impala import ImpalaConfig
from ludus.learn.algorithms.ppo import clipped_policy_loss
from ludus.learn.algorithms.targets import vtrace_targets
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.data.segment import Segment

__all__ = ["APPO", "APPOConfig"]


@dataclass(frozen=True, kw_only=True)
class APPOConfig(ImpalaConfig):
    num_epochs: int = option(2, help="passes over each batch", minimum=1)
    minibatch_size: int = option(128, help="environment steps of one gradient step; 0: the whole batch", minimum=0)
    clip: float = option(0.2, help="how far the ratio to the old policy counts", minimum=0.0)
    normalise_advantage: bool = option(True, help="bring advantages to mean 0 and std 1")


class APPO(ActorCritic[APPOConfig]):
    Config = APPOConfig
    is_off_policy = True
    default_flow = "async"

    def off_policy_targets(
        self, segment: Segment, value: Tensor, logp: Tensor, reduce: Any = None
    ) -> dict[str, Tensor]:
        config = self.config
        targets = vtrace_targets(
            segment, value, logp, gamma=config.gamma, lam=config.lam, rho_max=config.rho_max, c_max=config.c_max,
            is_weighted=False, is_normalised=config.normalise_advantage, reduce=reduce,
        )  # fmt: skip
        # After they are normalised: a mean that is taken off weighted advantages would be none of any policy's.
        weight = (logp - segment.logp).exp().clamp(max=config.rho_max)
        active = segment.active[:-1]
        targets["advantage"] = targets["advantage"] * weight.where(active, weight.new_zeros(()))
        targets["old_logp"] = logp.where(active, segment.logp)
        return targets

    def loss(self, view: View) -> tuple[Tensor, dict[str, Any]]:
        config = self.config
        view.logp = view.targets.pop("old_logp")
        return clipped_policy_loss(
            view, clip=config.clip, value_coef=config.value_coef, entropy_coef=config.entropy_coef
        )
