"""IMPALA: learn from what older versions did, corrected by V-trace. https://arxiv.org/abs/1802.01561"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ludus.learn.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from ludus.learn.algorithms.algorithm import View
from ludus.learn.algorithms.targets import vtrace_targets
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Impala", "ImpalaConfig"]


@dataclass(frozen=True, kw_only=True)
class ImpalaConfig(ActorCriticConfig):
    num_steps: int = option(32, help="steps of each environment in one segment", minimum=1)
    rho_max: float = option(1.0, help="where V-trace's weight of a step is cut off", minimum=0.0)
    c_max: float = option(1.0, help="where V-trace's weight of the trace is cut off", minimum=0.0)
    entropy_coef: float = option(0.01, help="weight of the entropy bonus", minimum=0.0)
    learning_rate: float = option(5e-4, help="step size of Adam", minimum=0.0)


class Impala(ActorCritic[ImpalaConfig]):
    Config = ImpalaConfig
    needs_time = True
    default_flow = "async"

    def loss(self, view: View) -> tuple[Tensor, dict[str, Tensor]]:
        config = self.config
        logp, entropy = view.head.logp_and_entropy(view.params, view.action, view.mask)
        assert view.segment is not None
        targets = vtrace_targets(
            view.segment,
            view.value,
            logp,
            gamma=config.gamma,
            lam=config.lam,
            rho_max=config.rho_max,
            c_max=config.c_max,
        )
        view.targets.update(targets)
        policy_loss = -view.mean(targets["advantage"] * logp)
        value_loss = 0.5 * view.mean((view.value[:-1] - targets["value_target"]).square())
        entropy = view.mean(entropy)
        loss = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
        ratio = (logp.detach() - view.logp).exp()
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "ratio": view.mean(ratio),
        }
