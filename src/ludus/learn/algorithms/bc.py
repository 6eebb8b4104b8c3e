"""Behaviour cloning: the policy under which the actions of a dataset are likeliest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ludus.learn.algorithms.algorithm import Loss
from ludus.learn.algorithms.offline_algorithm import OfflineAlgorithm, OfflineConfig
from ludus.learn.algorithms.replay_algorithm import ReplayView
from ludus.options import option

__all__ = ["BC", "BCConfig"]


@dataclass(frozen=True, kw_only=True)
class BCConfig(OfflineConfig):
    normalise_rewards: bool = option(False, help="rewards play no part in behaviour cloning")
    entropy_coef: float = option(
        0.0, help="weight of an entropy bonus: less certain where examples are few", minimum=0.0
    )


class BC(OfflineAlgorithm[BCConfig]):
    Config = BCConfig
    # There are no rewards in its loss, and no target networks.
    unused = OfflineAlgorithm.unused | {"gamma", "n_step", "reward_scale", "normalise_rewards", "tau"}

    def losses(self, view: ReplayView) -> Iterator[Loss]:
        batch, policy = view.batch, view.networks.policy
        assert batch is not None
        params, _ = policy.evaluate(batch.obs)
        logp, entropy = policy.head.logp_and_entropy(params, batch.action, batch.mask)
        logp, entropy = view.mean(logp), view.mean(entropy)
        yield Loss(-logp - self.config.entropy_coef * entropy, {"logp": logp, "entropy": entropy})
