"""IMPALA: learn from what older versions did, corrected by V-trace. https://arxiv.org/abs/1802.01561

V-trace corrects what was sampled, but bounds no step: several updates learn from steps of one old version, and together
they can push a probability to 0 or 1, from where nothing is learnt. So a step whose probability has been pushed by
`max_ratio` already pushes no further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.learn import ops
from ludus.learn.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from ludus.learn.algorithms.algorithm import View
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Impala", "ImpalaConfig"]


@dataclass(frozen=True, kw_only=True)
class ImpalaConfig(ActorCriticConfig):
    minibatch_size: int = option(512, help="environment steps of one gradient step; 0: the whole batch", minimum=0)
    normalise_advantage: bool = option(True, help="normalise advantages to mean 0 and std 1")
    rho_max: float = option(1.0, help="V-trace: clip of the importance weights (rho)", minimum=0.0)
    c_max: float = option(1.0, help="V-trace: clip of the trace weights (c)", minimum=0.0)
    max_ratio: float = option(
        1.5, help="the factor by which all updates together may push a step's probability, up or down", minimum=1.0
    )
    learning_rate: float = option(5e-4, help="learning rate of Adam", minimum=0.0)


class Impala(ActorCritic[ImpalaConfig]):
    Config = ImpalaConfig
    needs_time = True
    default_flow = "async"

    def loss(self, view: View) -> tuple[Tensor, dict[str, Any]]:
        config, segment = self.config, view.segment
        assert segment is not None
        logp, entropy = view.head.logp_and_entropy(view.params, view.action, view.mask)
        value_target, advantage = ops.vtrace(
            logp, segment.logp, segment.reward, view.value, *segment.ends,
            gamma=config.gamma, lam=config.lam, rho_max=config.rho_max, c_max=config.c_max, weighted=False,
        )  # fmt: skip
        view.targets["value_target"] = value_target  # for the scale of returns
        ratio = (logp.detach() - view.logp).exp()
        if config.normalise_advantage:  # before it is weighted: the mean of weighted ones is not that of any policy
            advantage = view.normalise(advantage)
        pushed = ratio.where(advantage > 0, 1.0 / ratio)
        weight = ratio.clamp(max=config.rho_max) * (pushed <= config.max_ratio)
        loss, metrics = ops.policy_gradient_loss(
            logp, entropy, view.value[:-1], advantage=advantage * weight,
            value_target=value_target, value_coef=config.value_coef, entropy_coef=self.entropy_coef, weight=view.weight,
        )  # fmt: skip
        metrics["ratio"] = view.mean(ratio)
        return loss, metrics
