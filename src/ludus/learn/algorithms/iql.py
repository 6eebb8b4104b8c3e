"""IQL: from a dataset to a policy better than the one that made it. https://arxiv.org/abs/2110.06169

No action is ever valued that is not in the dataset. The value of a state is an upper expectile of what the actions
taken there are worth, so it is nearly that of the best of them; critics learn from that value, and the policy imitates
actions by how much better than it they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.data.actions import Continuous, Discrete, MultiDiscrete
from ludus.learn.algorithms.algorithm import Loss, Networks
from ludus.learn.algorithms.offline_algorithm import OfflineAlgorithm, OfflineConfig
from ludus.learn.algorithms.replay_algorithm import ReplayView
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.data.actions import ActionSpec
    from ludus.data.nest import Nest
    from ludus.learn.policies.policy import Policy

__all__ = ["IQL", "IQLConfig"]


@dataclass(frozen=True, kw_only=True)
class IQLConfig(OfflineConfig):
    expectile: float = option(
        0.8,
        help="of action values in the value of a state: 0.5 is their mean, 1 their maximum",
        minimum=0.0,
        maximum=1.0,
    )
    temperature: float = option(
        3.0, help="how sharply better actions are preferred: 0 is behaviour cloning", minimum=0.0
    )
    max_weight: float = option(100.0, help="the most that an action counts more than an average one", minimum=1.0)
    num_critics: int = option(2, help="critics, of which the least counts", minimum=1)


class IQL(OfflineAlgorithm[IQLConfig]):
    """Trains the policy, critics of actions and the value of states."""

    Config = IQLConfig

    def networks(self, policy: Policy) -> Networks:
        from ludus.learn.networks.critic import Critics  # here, because it loads torch

        spec = policy.spec
        critics = Critics(spec.obs, _valued(spec.action), spec.network, num_critics=self.config.num_critics)
        value = Critics(spec.obs, Discrete(1), spec.network, num_critics=1)
        return Networks(
            policy=policy,
            trained={"critics": critics, "value": value},
            targets={"critics_target": copy.deepcopy(critics)},
        )

    def losses(self, view: ReplayView) -> Iterator[Loss]:
        import torch

        config, networks, batch = self.config, view.networks, view.batch
        assert batch is not None
        policy, value = networks.policy, networks.trained["value"]
        with torch.no_grad():
            obs, next_obs = policy.scaled(batch.obs), policy.scaled(batch.next_obs)
            q = _values(networks.targets["critics_target"], obs, batch.action, policy).amin(0)
        v = value(obs)[0, :, 0]
        excess = q - v
        share = torch.where(excess.detach() > 0.0, config.expectile, 1.0 - config.expectile)
        yield Loss(view.mean(share * excess.square()), {"value": view.mean(v.detach())}, "value")

        with torch.no_grad():
            advantage = q - value(obs)[0, :, 0]
            weight = (advantage * config.temperature).exp().clamp(max=config.max_weight)
        params, _ = policy.evaluate(batch.obs)
        logp, entropy = policy.head.logp_and_entropy(params, batch.action, batch.mask)
        metrics = {"logp": logp, "entropy": entropy, "advantage": advantage, "weight": weight}
        yield Loss(-view.mean(weight * logp), {name: view.mean(each.detach()) for name, each in metrics.items()})

        with torch.no_grad():
            target = batch.reward + batch.discount * value(next_obs)[0, :, 0]
        q = _values(networks.trained["critics"], obs, batch.action, policy)
        yield Loss(view.mean((q - target).square()) * (0.5 * len(q)), {"q": view.mean(q.detach())}, "critics")

    def after_step(self, networks: Networks, num_steps: int) -> None:
        from ludus.learn.networks.follow import follow  # here, because it loads torch

        follow(networks.targets["critics_target"], networks.trained["critics"], self.config.tau)


def _valued(action: ActionSpec) -> ActionSpec:
    """What critics are made for: of several choices at once, all of them side by side, each 0 or 1."""
    if isinstance(action, MultiDiscrete):
        return Continuous((-1.0,) * sum(action.num_choices), (1.0,) * sum(action.num_choices))
    return action


def _values(critics: Any, obs: Nest, action: Tensor, policy: Policy) -> Tensor:
    """What critics say of these actions `[K, N]`."""
    import torch

    spec = policy.spec.action
    if isinstance(spec, Discrete):
        q: Tensor = critics(obs)
        return q.gather(-1, action.view(1, -1, 1).expand(len(q), -1, 1)).squeeze(-1)
    if isinstance(spec, MultiDiscrete):
        choices = [torch.nn.functional.one_hot(action[:, i], size) for i, size in enumerate(spec.num_choices)]
        inputs = torch.cat(choices, -1).float()
    else:
        head: Any = policy.head
        inputs = head.to_unit(action)
    valued: Tensor = critics(obs, inputs)
    return valued
