"""MAPPO: PPO of a team, whose critic sees the whole env. https://arxiv.org/abs/2103.01955

Agents share one policy and one reward. The critic, a network of its own that only training needs, values the global
state of the env, or the observations of all agents where it has none; so what is learnt of a step is the same for all
agents that acted in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.data import nest as nests
from ludus.data import team
from ludus.learn import ops
from ludus.learn.algorithms.algorithm import Loss, Networks, View
from ludus.learn.algorithms.ippo import IPPO, IPPOConfig
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.core import EnvSpec
    from ludus.data.nest import Nest
    from ludus.data.segment import Segment
    from ludus.learn.algorithms.sample import SampleView
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.normaliser import Normaliser
    from ludus.learn.policies.policy import Policy, PolicySpec

__all__ = ["MAPPO", "MAPPOConfig"]


@dataclass(frozen=True, kw_only=True)
class MAPPOConfig(IPPOConfig):
    team_reward: str = option(
        "mean", help="what is learnt from, of the rewards of an env's agents", choices=team.REWARDS
    )


class MAPPO(IPPO):
    """Trains the policy and the critic by one loss; `Policy.value_scale` is that of the critic's values."""

    Config = MAPPOConfig
    config: MAPPOConfig
    group = "env"

    def policy_spec(self, env: EnvSpec, network: NetworkConfig) -> PolicySpec:
        return dataclasses.replace(super().policy_spec(env, network), has_value=False)

    def networks(self, policy: Policy) -> Networks:
        from ludus.learn.networks.central_critic import CentralCritic, TeamReader  # here, because it loads torch
        from ludus.learn.policies.central import Central

        spec, state = policy.spec, self.global_state
        reader = TeamReader(spec.obs, num_agents=self.num_agents, global_state=state, encoder=spec.network.encoder)
        critic = Central(
            CentralCritic(reader, spec.network), global_state=state, is_normalised=self.config.normalise_obs
        )
        return Networks(policy=policy, trained={"critic": critic}, value_model=critic)

    def prepare(self, segment: Segment) -> Segment:
        return team.share_reward(segment, self.num_agents, reward=self.config.team_reward)

    def normalised(self, networks: Networks, segment: Segment) -> Iterator[tuple[Normaliser, Nest]]:
        yield from super().normalised(networks, segment)
        critic: Any = networks.trained["critic"]
        if critic.normaliser is not None:
            yield critic.normaliser, segment.global_state

    def targets(self, sample: SampleView) -> dict[str, Tensor]:
        config, segment, num_agents = self.config, sample.segment, self.num_agents
        by_env = nests.map(lambda leaf: leaf.unflatten(1, (-1, num_agents)), segment.obs)
        value = self._values(sample.networks, by_env, segment.global_state) + sample.shift
        reward = segment.reward[:, ::num_agents].contiguous()
        ends = team.team_ends(segment, num_agents)
        found = ops.gae(reward, value, *ends, gamma=config.gamma, lam=config.lam)
        advantage, value_target = (each.repeat_interleave(num_agents, 1) for each in found)
        if config.normalise_advantage:
            advantage = ops.normalise(advantage, segment.active[:-1], sample.reduce)
        return {"advantage": advantage, "value_target": value_target}

    def losses(self, view: View) -> Iterator[Loss]:
        value = self._values(view.networks, view.team_obs, view.global_state)
        view.value = value.repeat_interleave(self.num_agents, -1)
        yield Loss(*self.loss(view), ("policy", "critic"))

    def _values(self, networks: Networks, obs: Nest, global_state: Nest) -> Tensor:
        """Of the team, `[...]`, from observations `[..., A, ...]` and states `[..., ...]`, in the critic's units."""
        critic: Any = networks.trained["critic"]
        obs_leaf = nests.leaves(obs)[0]
        num_leading = obs_leaf.dim() - 1 - len(nests.leaves(networks.policy.spec.obs)[0].shape)
        leading = obs_leaf.shape[:num_leading]
        seen = critic.seen(networks.policy.scaled(obs), global_state)
        flat = seen if num_leading == 1 else nests.map(lambda leaf: leaf.flatten(0, num_leading - 1), seen)
        value: Tensor = critic.core(flat).view(leading)
        return value
