"""TD3: one best action for each observation, learnt from replay through twin critics. https://arxiv.org/abs/1802.09477"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ludus.data.actions import Continuous
from ludus.errors import ConfigError
from ludus.learn.algorithms.algorithm import Loss, Networks
from ludus.learn.algorithms.replay_algorithm import ReplayAlgorithm, ReplayConfig, ReplayView
from ludus.learn.algorithms.sac import random_phase
from ludus.options import option

if TYPE_CHECKING:
    from ludus.core import EnvSpec
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.policy import Policy, PolicySpec

__all__ = ["TD3", "TD3Config"]


@dataclass(frozen=True, kw_only=True)
class TD3Config(ReplayConfig):
    learning_rate: float = option(1e-3, help="learning rate of Adam", minimum=0.0)
    max_grad_norm: float = option(0.0, help="gradient-norm clip; 0 disables it", minimum=0.0)
    normalise_obs: bool = option(False, help="normalise float observations to mean 0 and std 1")
    normalise_rewards: bool = option(False, help="learn in units of the returns seen so far")
    adam_eps: float = option(1e-8, help="epsilon of Adam", minimum=0.0)
    noise: float = option(0.1, help="std of the noise on actions, in units of their bounds", minimum=0.0)
    target_noise: float = option(0.2, help="std of the noise on target actions, in these units", minimum=0.0)
    target_noise_clip: float = option(0.5, help="bound of the noise on target actions", minimum=0.0)
    num_critics: int = option(2, help="critics, of which the least counts in targets", minimum=1)
    policy_every: int = option(2, help="gradient steps of the critics for each of the policy and targets", minimum=1)
    hold: int = option(1, help="steps for which a random action is kept before the first update", minimum=1)


class TD3(ReplayAlgorithm[TD3Config]):
    """Trains the policy through the first of its critics."""

    Config: ClassVar[type[TD3Config]] = TD3Config

    def policy_spec(self, env: EnvSpec, network: NetworkConfig) -> PolicySpec:
        if not isinstance(env.action, Continuous):
            raise ConfigError(
                f"td3 learns continuous actions; those of this environment are {env.action}. Use sac or dqn."
            )
        network = network.or_else(hidden=(256, 256), activation="relu")
        return dataclasses.replace(super().policy_spec(env, network), head="noisy_tanh")

    def networks(self, policy: Policy) -> Networks:
        from ludus.learn.networks.critic import Critics

        spec = policy.spec
        critics = Critics(spec.obs, spec.action, spec.network, num_critics=self.config.num_critics)
        targets = {"critics_target": copy.deepcopy(critics), "policy_target": copy.deepcopy(policy.model)}
        return Networks(policy=policy, trained={"critics": critics}, targets=targets)

    def exploration(self, num_steps: int, progress: float) -> tuple[float, ...]:
        return *random_phase(self.config, num_steps, self.config.hold), self.config.noise

    def losses(self, view: ReplayView) -> Iterator[Loss]:
        import torch

        config, networks, batch = self.config, view.networks, view.batch
        policy, critics = networks.policy, networks.trained["critics"]
        head: Any = policy.head
        assert batch is not None
        with torch.no_grad():
            obs, next_obs = policy.scaled(batch.obs), policy.scaled(batch.next_obs)
            next_unit = networks.targets["policy_target"](next_obs)[0].tanh()
            noise = torch.empty(next_unit.shape, device=next_unit.device).normal_(generator=view.generator)
            next_unit += (noise * config.target_noise).clamp_(-config.target_noise_clip, config.target_noise_clip)
            best = networks.targets["critics_target"](next_obs, next_unit.clamp_(-1.0, 1.0)).amin(0)
            target = batch.reward + batch.discount * best
            unit = head.bounds.to_unit(batch.action)
        error = critics(obs, unit) - target
        loss = view.mean(error.square()) * (0.5 * config.num_critics)
        of_rows = error.detach()
        metrics = {"q": view.mean(of_rows + target)}
        yield Loss(loss, metrics, "critics", priority=of_rows.abs().mean(0) if config.prioritised else None)
        if (view.num_steps + 1) % config.policy_every == 0:
            q = critics(obs, policy.model(obs)[0].tanh(), is_frozen=True, num_critics=1)
            yield Loss(-view.mean(q[0]), {})

    def after_step(self, networks: Networks, num_steps: int) -> None:
        from ludus.learn.networks.follow import follow  # here, because it loads torch

        if num_steps % self.config.policy_every == 0:
            follow(networks.targets["critics_target"], networks.trained["critics"], self.config.tau)
            follow(networks.targets["policy_target"], networks.policy.model, self.config.tau)
