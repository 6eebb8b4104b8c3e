"""DQN: the values of choices, learnt from replay. https://doi.org/10.1038/nature14236

With what came later, each by a setting: double, https://arxiv.org/abs/1509.06461; dueling, .../1511.06581; n-step;
prioritised replay, .../1511.05952; distributions of returns instead of their means, C51 .../1707.06887 and QR-DQN
.../1710.10044.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ludus.learn.algorithms.algorithm import Loss, Networks
from ludus.learn.algorithms.replay_algorithm import ReplayAlgorithm, ReplayConfig, ReplayView
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.core import EnvSpec
    from ludus.data.nest import Nest
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.policy import Policy, PolicySpec

__all__ = ["DQN", "DQNConfig"]


@dataclass(frozen=True, kw_only=True)
class DQNConfig(ReplayConfig):
    batch_size: int = option(128, help="transitions, or sequences, of one gradient step", minimum=1)
    learning_rate: float = option(1e-3, help="learning rate of Adam", minimum=0.0)
    updates_per_step: float = option(0.25, help="gradient steps for each environment step", minimum=0.0)
    double: bool = option(True, help="the network chooses the next action, the target network says what it is worth")
    dueling: bool = option(False, help="values and advantages apart; two towers where observations are vectors")
    huber: float = option(1.0, help="errors beyond this count linearly", minimum=0.0)
    target_every: int = option(
        0, help="copy the network to the target network after so many gradient steps; 0: by tau, at each", minimum=0
    )
    epsilon_start: float = option(1.0, help="share of random actions in the beginning", minimum=0.0, maximum=1.0)
    epsilon_end: float = option(0.05, help="share of random actions later on", minimum=0.0, maximum=1.0)
    epsilon_fraction: float = option(
        0.1, help="fraction of the run after which epsilon is epsilon_end", minimum=0.0, maximum=1.0
    )


Q = TypeVar("Q", bound=DQNConfig)


class DQN(ReplayAlgorithm[Q]):
    """`networks.targets["target"]` is a copy of the policy's model; observations are scaled by the policy for both."""

    Config: ClassVar[type[DQNConfig]] = DQNConfig

    def policy_spec(self, env: EnvSpec, network: NetworkConfig) -> PolicySpec:
        spec = super().policy_spec(env, network)
        return dataclasses.replace(spec, head="epsilon_greedy", has_value=self.config.dueling)

    def networks(self, policy: Policy) -> Networks:
        return Networks(policy=policy, targets={"target": copy.deepcopy(policy.model)})

    def exploration(self, num_steps: int, progress: float) -> tuple[float, ...]:
        config = self.config
        if num_steps < config.min_size:
            return (1.0,)
        share = 1.0 if progress >= config.epsilon_fraction else progress / config.epsilon_fraction
        return (config.epsilon_start + (config.epsilon_end - config.epsilon_start) * share,)

    def losses(self, view: ReplayView) -> Iterator[Loss]:
        import torch

        batch, policy = view.batch, view.networks.policy
        head: Any = policy.head
        assert batch is not None
        outputs = self._outputs(policy.model, policy.scaled(batch.obs))
        chosen = batch.action.unsqueeze(-1)
        with torch.no_grad():
            next_obs = policy.scaled(batch.next_obs)
            of_target = self._outputs(view.networks.targets["target"], next_obs)
            by = self._outputs(policy.model, next_obs) if self.config.double else of_target
            best = head.best(by, batch.next_mask).unsqueeze(-1)
            target = batch.reward + batch.discount * of_target.gather(-1, best).squeeze(-1)
        q = outputs.gather(-1, chosen).squeeze(-1)
        loss = torch.nn.functional.huber_loss(q, target, reduction="none", delta=self.config.huber)
        error = q.detach() - target
        yield Loss(view.mean(loss), {"q": view.mean(q.detach())}, priority=error.abs())

    def after_step(self, networks: Networks, num_steps: int) -> None:
        from ludus.learn.networks.follow import follow  # here, because it loads torch

        config, target = self.config, networks.targets["target"]
        if config.target_every == 0:
            follow(target, networks.policy.model, config.tau)
        elif num_steps % config.target_every == 0:
            follow(target, networks.policy.model, 1.0)

    def _outputs(self, model: Any, obs: Nest) -> Tensor:
        """The model's, with the value added where they are advantages."""
        outputs, value = model(obs)
        if self.config.dueling:
            return outputs - outputs.mean(-1, keepdim=True) + value.unsqueeze(-1)
        return outputs
