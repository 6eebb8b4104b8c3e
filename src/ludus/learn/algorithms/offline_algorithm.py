"""Algorithms that learn from datasets alone: what they share. No env is stepped but to evaluate at the end."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ludus.learn.algorithms.replay_algorithm import ReplayAlgorithm, ReplayConfig
from ludus.options import option

if TYPE_CHECKING:
    from ludus.core import EnvSpec
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.policy import PolicySpec

__all__ = ["OfflineAlgorithm", "OfflineConfig"]


@dataclass(frozen=True, kw_only=True)
class OfflineConfig(ReplayConfig):
    """What every offline algorithm has. Of what is inherited, `OfflineAlgorithm.unused` has no effect."""

    learning_rate: float = option(1e-3, help="learning rate of Adam", minimum=0.0)
    squash: bool = option(False, help="continuous actions pass through tanh to their bounds")
    log_std: float = option(0.0, help="initial log of the std of continuous actions")


O = TypeVar("O", bound=OfflineConfig)  # noqa: E741 - the algorithm's own settings


class OfflineAlgorithm(ReplayAlgorithm[O]):
    """Its policy is a distribution over actions, without a value."""

    Config: ClassVar[type[OfflineConfig]] = OfflineConfig
    default_flow: ClassVar[str] = "offline"
    unused: ClassVar[frozenset[str]] = frozenset(
        (
            *("num_envs", "num_steps"),  # of collecting
            *("capacity", "min_size", "updates_per_step"),  # of a table
            *("prioritised", "priority_exponent", "importance_exponent"),
        )
    )

    def policy_spec(self, env: EnvSpec, network: NetworkConfig) -> PolicySpec:
        return dataclasses.replace(
            super().policy_spec(env, network), squash=self.config.squash, log_std=self.config.log_std
        )
