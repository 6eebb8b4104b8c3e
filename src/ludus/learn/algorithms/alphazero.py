"""AlphaZero: learn from a tree search what it found, and what came of it. https://arxiv.org/abs/1712.01815

The search (`learn/search`) chooses every move in training and notes its policy; the network learns that policy, and as
its value the outcome for who moved. Where a segment ends before the game does, the value of its last observation stands
for the outcome. Evaluations and serving are by the network alone, unless they are asked to search.

By default roots are Gumbel's, whose policies are worth learning after few simulations already. With `gumbel=no` they
are those of the first paper: noise on the priors, visits as the policy, and moves drawn by visits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.learn import ops
from ludus.learn.algorithms.algorithm import Algorithm, SegmentConfig, View
from ludus.learn.search.settings import SearchSettings
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.learn.algorithms.sample import SampleView

__all__ = ["AlphaZero", "AlphaZeroConfig"]


@dataclass(frozen=True, kw_only=True)
class AlphaZeroConfig(SegmentConfig):
    simulations: int = option(32, help="simulations of the tree search before each move", minimum=1)
    gumbel: bool = option(True, help="Gumbel roots with sequential halving; no: noise and visit counts")
    considered: int = option(16, help="Gumbel roots: moves that are tried, at most", minimum=1)
    sharpness: float = option(0.1, help="Gumbel roots: how much a difference of values counts", minimum=0.0)
    exploration: float = option(1.25, help="PUCT's constant: how much priors count beside values", minimum=0.0)
    noise: float = option(
        0.25, help="gumbel=no: the part of the root's priors that is Dirichlet noise", minimum=0.0, maximum=1.0
    )
    noise_alpha: float = option(1.0, help="gumbel=no: alpha of that noise, 10 / the number of moves or so", minimum=0.0)
    temperature: float = option(
        1.0, help="gumbel=no: moves are drawn by visits ** (1 / temperature); 0: the most visited", minimum=0.0
    )
    lam: float = option(1.0, help="lambda of value targets; 1: the outcome", minimum=0.0, maximum=1.0)
    value_coef: float = option(1.0, help="weight of the value loss", minimum=0.0)
    gamma: float = option(1.0, help="discount of a reward one step later", minimum=0.0, maximum=1.0)
    num_envs: int = option(64, help="environments of one simulator, in all its groups", minimum=1)
    num_steps: int = option(64, help="steps of each environment in one segment", minimum=1)
    num_epochs: int = option(3, help="passes over each batch", minimum=1)
    minibatch_size: int = option(512, help="environment steps of one gradient step; 0: the whole batch", minimum=0)
    learning_rate: float = option(1e-3, help="learning rate of Adam", minimum=0.0)
    normalise_obs: bool = option(False, help="normalise float observations to mean 0 and std 1")


class AlphaZero(Algorithm[AlphaZeroConfig]):
    Config = AlphaZeroConfig
    searches = True

    def search(self) -> SearchSettings:
        config = self.config
        return SearchSettings(
            simulations=config.simulations,
            exploration=config.exploration,
            noise=0.0 if config.gumbel else config.noise,
            noise_alpha=config.noise_alpha,
            gumbel=config.gumbel,
            considered=config.considered,
            sharpness=config.sharpness,
            temperature=config.temperature,
        )

    def targets(self, sample: SampleView) -> dict[str, Tensor]:
        config, segment = self.config, sample.segment
        _, outcome = ops.gae(segment.reward, sample.values(), *segment.ends, gamma=config.gamma, lam=config.lam)
        return {"policy": segment.extra, "value_target": outcome}

    def loss(self, view: View) -> tuple[Tensor, dict[str, Any]]:
        """Cross-entropy to the search's policy, and half the squared error of the value."""
        logp = view.head.all_logp(view.params, view.mask)
        policy = view.targets["policy"]
        policy_loss = -view.mean((policy * logp).sum(-1))
        value_loss = 0.5 * view.mean((view.value - view.targets["value_target"]) ** 2)
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": -view.mean((logp.exp() * logp).sum(-1)),
            # How far the search is from the network: nothing more is learnt where it finds nothing better.
            "search_kl": policy_loss + view.mean((policy * policy.clamp(min=1e-30).log()).sum(-1)),
        }
        return policy_loss + self.config.value_coef * value_loss, metrics
