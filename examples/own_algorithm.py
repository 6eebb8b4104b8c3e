"""An algorithm of one's own: settings, targets and a loss. Collecting, shuffling, Adam and checkpoints are shared.

    python examples/own_algorithm.py
    ludus train examples/own_algorithm.py:KLPenalty CartPole-v1 --kl-coef 0.3

PPO's other form (https://arxiv.org/abs/1707.06347, section 4): nothing is clipped; moving away from the policy that
chose the actions has a price instead.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import ludus
from ludus.learn import ops
from ludus.learn.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from ludus.learn.algorithms.algorithm import View
from ludus.options import option


@dataclass(frozen=True, kw_only=True)
class KLPenaltyConfig(ActorCriticConfig):
    """Every field is an option of `ludus train`; those of ActorCriticConfig are, too."""

    num_steps: int = option(64, help="steps of each environment in one segment", minimum=1)
    num_epochs: int = option(8, help="passes over each batch", minimum=1)
    minibatch_size: int = option(256, help="environment steps of one gradient step", minimum=0)
    learning_rate: float = option(1e-3, help="learning rate of Adam", minimum=0.0)
    kl_coef: float = option(0.5, help="price of moving away from the old policy", minimum=0.0)


class KLPenalty(ActorCritic[KLPenaltyConfig]):
    Config = KLPenaltyConfig

    def targets(self, sample: Any) -> dict[str, Any]:
        """Once for each sample, without gradients."""
        segment, config = sample.segment, self.config
        advantage, target = ops.gae(segment.reward, sample.values(), *segment.ends, gamma=config.gamma, lam=config.lam)
        return {"advantage": advantage, "value_target": target}

    def loss(self, view: View) -> tuple[Any, dict[str, Any]]:
        """For each minibatch of it, with gradients."""
        log_ratio = view.head.logp(view.params, view.action, view.mask) - view.logp
        gain = view.mean(log_ratio.exp() * view.normalise(view.targets["advantage"]))
        kl = view.mean(log_ratio.exp() - 1.0 - log_ratio)  # never negative: http://joschu.net/blog/kl-approx.html
        value_loss = 0.5 * view.mean((view.value - view.targets["value_target"]).square())
        return self.config.kl_coef * kl + self.config.value_coef * value_loss - gain, {"kl": kl, "value": value_loss}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60_000)
    run = ludus.train(f"{__file__}:KLPenalty", "CartPole-v1", steps=parser.parse_args().steps, seed=1)
    print(f"return {run.result['eval_return_mean']:.1f}; {run.trial_dir}")
