"""What actor-critics share: settings of values, of exploration and of continuous actions."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ludus.learn.algorithms.algorithm import Algorithm, SegmentConfig
from ludus.options import option

if TYPE_CHECKING:
    from ludus.core import EnvSpec
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.policy import PolicySpec

__all__ = ["ActorCritic", "ActorCriticConfig"]

_AMONG_AGENTS = 0.05


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(SegmentConfig):
    """What every actor-critic has beside `SegmentConfig`."""

    lam: float = option(0.95, help="lambda of advantages and value targets", minimum=0.0, maximum=1.0)
    value_coef: float = option(0.5, help="weight of the value loss", minimum=0.0)
    entropy_coef: float | None = option(
        None,
        help="weight of the entropy bonus; none: 0.01, of A2C 0, and 0.05 where agents learn against each other",
        minimum=0.0,
    )
    normalise_returns: bool = option(True, help="learn values in units of the running std of returns")
    squash: bool = option(False, help="continuous actions pass through tanh to their bounds")
    log_std: float = option(0.0, help="initial log of the std of continuous actions")


A = TypeVar("A", bound=ActorCriticConfig)


class ActorCritic(Algorithm[A]):
    """Its policy is a distribution over actions and a value."""

    Config: ClassVar[type[ActorCriticConfig]] = ActorCriticConfig
    usual_entropy_coef: ClassVar[float] = 0.01

    @property
    def entropy_coef(self) -> float:
        """As configured, or as fits: without chance, self-play ends where one side always wins, and learns no more."""
        if self.config.entropy_coef is not None:
            return self.config.entropy_coef
        return _AMONG_AGENTS if self.num_agents > 1 and not self.is_cooperative else self.usual_entropy_coef

    def policy_spec(self, env: EnvSpec, network: NetworkConfig) -> PolicySpec:
        config = self.config
        return dataclasses.replace(
            super().policy_spec(env, network),
            squash=config.squash,
            normalise_returns=config.normalise_returns,
            log_std=config.log_std,
        )
