"""DQN: the values of choices, learnt from replay. https://doi.org/10.1038/nature14236

What came later is a setting each: double (https://arxiv.org/abs/1509.06461), dueling (https://arxiv.org/abs/1511.06581),
n-step, prioritised (https://arxiv.org/abs/1511.05952), and distributions of returns instead of their means: C51
(https://arxiv.org/abs/1707.06887) and QR-DQN (https://arxiv.org/abs/1710.10044).
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from ludus.errors import ConfigError
from ludus.learn.algorithms.algorithm import Loss, Networks
from ludus.learn.algorithms.q_learning import QLearning, QLearningConfig
from ludus.learn.algorithms.replay_algorithm import ReplayView
from ludus.learn.ops import value_errors
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.core import EnvSpec
    from ludus.data.nest import Nest
    from ludus.data.transitions import Transitions
    from ludus.learn.algorithms.dqn_passes import DQNPasses
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.policy import Policy, PolicySpec

__all__ = ["DQN", "DQNConfig"]

_LEAST_PRIORITY = 1e-6


@dataclass(frozen=True, kw_only=True)
class DQNConfig(QLearningConfig):
    num_steps: int = option(4, help="steps of each environment between updates", minimum=1)
    batch_size: int = option(128, help="transitions, or sequences, of one gradient step", minimum=1)
    updates_per_step: float = option(0.25, help="gradient steps for each environment step; 0: no limit", minimum=0.0)
    n_step: int = option(3, help="steps of rewards in a target", minimum=1)
    dueling: bool = option(False, help="values and advantages apart; two towers where observations are vectors")
    distribution: str = option(
        "none", help="learn the distribution of returns instead of its mean", choices=("none", "c51", "qr")
    )
    num_atoms: int = option(51, help="c51: returns that have a probability", minimum=2)
    v_min: float = option(-10.0, help="c51: the least of them, in the scale that is learnt in")
    v_max: float = option(10.0, help="c51: the largest of them")
    num_quantiles: int = option(25, help="qr: quantiles of the return", minimum=1)


Q = TypeVar("Q", bound=DQNConfig)


class DQN(QLearning[Q]):
    """`networks.targets["target"]` is a copy of the policy's model; observations are scaled by the policy for both.

    A model's outputs are the head's: for each choice its value, logits of returns (c51) or quantiles of them (qr).
    """

    Config: ClassVar[type[DQNConfig]] = DQNConfig

    def __init__(self, config: Q, *, num_agents: int = 1) -> None:
        super().__init__(config, num_agents=num_agents)
        if config.dueling and config.distribution == "c51":
            raise ConfigError("dueling=yes does not go with distribution=c51: use qr, or none.")

    def policy_spec(self, env: EnvSpec, network: NetworkConfig) -> PolicySpec:
        config = self.config
        spec = super().policy_spec(env, network.or_else(hidden=(256, 256), activation="relu"))
        head, args = "epsilon_greedy", {}
        if config.distribution == "c51":
            head = "categorical_returns"
            args = {"num_atoms": config.num_atoms, "v_min": config.v_min, "v_max": config.v_max}
        elif config.distribution == "qr":
            head, args = "quantile_returns", {"num_quantiles": config.num_quantiles}
        return dataclasses.replace(spec, head=head, head_args=args, has_value=config.dueling)

    def networks(self, policy: Policy) -> Networks:
        return Networks(policy=policy, targets={"target": copy.deepcopy(policy.model)})

    def losses(self, view: ReplayView) -> Iterator[Loss]:
        passes = self._passes(view.networks)
        return self._by_graph(view) if passes is None else self._by_passes(view, passes)

    def _passes(self, networks: Networks) -> DQNPasses | None:
        """What computes the gradient without torch's graph, where that can be."""
        if "passes" not in networks.workspace:
            from ludus.learn.algorithms.dqn_passes import DQNPasses  # here, because it loads torch

            is_plain = self.config.distribution == "none" and not self.config.dueling
            networks.workspace["passes"] = DQNPasses(networks) if is_plain and DQNPasses.fits(networks) else None
        passes: DQNPasses | None = networks.workspace["passes"]
        return passes

    def _by_passes(self, view: ReplayView, passes: DQNPasses) -> Iterator[Loss]:
        import torch

        batch, policy, config = view.batch, view.networks.policy, self.config
        assert batch is not None
        with torch.no_grad():
            obs, next_obs = (policy.scaled(each).numpy() for each in (batch.obs, batch.next_obs))
        loss, error = passes.loss(view, obs, next_obs, double=config.double, huber=config.huber)
        yield loss._replace(priority=torch.from_numpy(np.abs(error).clip(_LEAST_PRIORITY)))

    def _by_graph(self, view: ReplayView) -> Iterator[Loss]:
        import torch  # here, because settings are shown without it

        batch, policy = view.batch, view.networks.policy
        assert batch is not None
        with torch.no_grad():
            next_obs = policy.scaled(batch.next_obs)
            of_target = self._outputs(view.networks.targets["target"], next_obs)
            by = self._outputs(policy.model, next_obs) if self.config.double else of_target
            head: Any = policy.head
            best = head.best(by, batch.next_mask)
            following = self._of_choice(of_target, best)
        outputs = self._outputs(policy.model, policy.scaled(batch.obs))
        loss, q, priority = self._compare(outputs, following, batch)
        # Not 0, nor less by rounding: what is learnt may be forgotten again, and should be drawn then.
        yield Loss(view.mean(loss), {"q": view.mean(q)}, priority=priority.detach().clamp(min=_LEAST_PRIORITY))

    def after_step(self, networks: Networks, num_steps: int) -> None:
        self.move_target(networks.targets["target"], networks.policy.model, num_steps)

    def _outputs(self, model: Any, obs: Nest) -> Tensor:
        """The model's for observations `[B, ...]`, with the value added where they are advantages."""
        return self._joined(*model(obs))

    def _joined(self, outputs: Tensor, value: Tensor) -> Tensor:
        if not self.config.dueling:
            return outputs
        return outputs - outputs.mean(-1, keepdim=True) + value.unsqueeze(-1)

    def _of_choice(self, outputs: Tensor, choice: Tensor) -> Tensor:
        """What a model gives for one choice of each row, `[B, numbers]`."""
        num_each = {"none": 1, "c51": self.config.num_atoms, "qr": self.config.num_quantiles}[self.config.distribution]
        if num_each == 1:
            return outputs.gather(-1, choice.unsqueeze(-1))
        each = outputs.unflatten(-1, (-1, num_each))
        return each.gather(-2, choice[:, None, None].expand(-1, 1, num_each)).squeeze(-2)

    def _compare(self, outputs: Tensor, following: Tensor, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, with gradients, value and priority of each row. `following` are the outputs for the next choice."""
        config = self.config
        if config.distribution == "none":
            from ludus.learn.ops.chosen_huber import chosen_huber  # here, because it loads torch

            target = batch.reward + batch.discount * following.squeeze(-1)
            loss, q, error = chosen_huber(outputs, batch.action, target, config.huber)
            return loss, q, error.abs()
        outputs = self._of_choice(outputs, batch.action)
        if config.distribution == "c51":
            target = value_errors.project(
                following.softmax(-1), batch.reward, batch.discount, v_min=config.v_min, v_max=config.v_max
            )
            loss = value_errors.categorical_error(outputs, target)
            atoms = outputs.new_tensor(range(config.num_atoms)) / (config.num_atoms - 1)
            q = config.v_min + (config.v_max - config.v_min) * (outputs.detach().softmax(-1) @ atoms)
            return loss, q, loss
        target = batch.reward.unsqueeze(-1) + batch.discount.unsqueeze(-1) * following
        loss = value_errors.quantile_error(outputs, target, delta=config.huber)
        return loss, outputs.detach().mean(-1), loss
