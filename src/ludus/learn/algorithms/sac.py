"""SAC: a policy that is as random as it can afford, learnt from replay. https://arxiv.org/abs/1812.05905

Actions are continuous, or one of several choices (https://arxiv.org/abs/1910.07207): then critics value all choices at
once, and expectations over the policy are sums instead of samples.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ludus.data.actions import Continuous, Discrete
from ludus.learn.algorithms.algorithm import Loss, Networks
from ludus.learn.algorithms.replay_algorithm import ReplayAlgorithm, ReplayConfig, ReplayView
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.core import EnvSpec
    from ludus.data.actions import ActionSpec
    from ludus.data.nest import Nest
    from ludus.learn.algorithms.sac_passes import SACPasses
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.policy import Policy, PolicySpec

__all__ = ["SAC", "SACConfig"]

_MAX_KEY = 1 << 20  # of held actions: exact in float32


@dataclass(frozen=True, kw_only=True)
class SACConfig(ReplayConfig):
    num_envs: int = option(1, help="environments of one simulator, in all its groups", minimum=1)
    learning_rate: float = option(1e-3, help="learning rate of Adam", minimum=0.0)
    max_grad_norm: float = option(0.0, help="gradient-norm clip; 0 disables it", minimum=0.0)
    normalise_obs: bool = option(False, help="normalise float observations to mean 0 and std 1")
    normalise_rewards: bool = option(False, help="learn in units of the returns seen so far")
    adam_eps: float = option(1e-8, help="epsilon of Adam", minimum=0.0)
    alpha: float | None = option(None, help="temperature: what entropy is worth; none: it is learnt", minimum=0.0)
    initial_alpha: float = option(1.0, help="temperature in the beginning, where it is learnt", minimum=1e-6)
    target_entropy: float | None = option(
        None, help="entropy that the temperature is learnt for; none: -1 for each number of an action"
    )
    target_entropy_share: float = option(
        0.5, help="of choices: the target entropy as a share of the largest", minimum=0.0, maximum=1.0
    )
    num_critics: int = option(2, help="critics, of which the least counts", minimum=1)
    policy_every: int = option(1, help="gradient steps of the critics for each of the policy", minimum=1)
    hold: int = option(1, help="steps for which a random action is kept before the first update", minimum=1)


class SAC(ReplayAlgorithm[SACConfig]):
    """Trains the policy, its critics and, unless `alpha` is set, the temperature."""

    Config: ClassVar[type[SACConfig]] = SACConfig

    def policy_spec(self, env: EnvSpec, network: NetworkConfig) -> PolicySpec:
        network = network.or_else(hidden=(256, 256), activation="relu")
        head = "tanh_gaussian" if isinstance(env.action, Continuous) else "explored_categorical"
        return dataclasses.replace(super().policy_spec(env, network), head=head)

    def networks(self, policy: Policy) -> Networks:
        from ludus.learn.networks.critic import Critics
        from ludus.learn.networks.temperature import Temperature

        spec, config = policy.spec, self.config
        critics = Critics(spec.obs, spec.action, spec.network, num_critics=config.num_critics)
        networks = Networks(
            policy=policy, trained={"critics": critics}, targets={"critics_target": copy.deepcopy(critics)}
        )
        if config.alpha is None:
            networks.trained["temperature"] = Temperature(config.initial_alpha)
        return networks

    def exploration(self, num_steps: int, progress: float) -> tuple[float, ...]:
        return random_phase(self.config, num_steps, self.config.hold)

    def losses(self, view: ReplayView) -> Iterator[Loss]:
        if not isinstance(view.networks.policy.spec.action, Continuous):
            return self._discrete(view)
        if "passes" not in view.networks.workspace:
            from ludus.learn.algorithms.sac_passes import SACPasses  # here, because it loads torch

            networks = view.networks
            networks.workspace["passes"] = SACPasses(networks) if SACPasses.fits(networks) else None
        passes = view.networks.workspace["passes"]
        return self._continuous(view) if passes is None else self._by_passes(view, passes)

    def after_step(self, networks: Networks, num_steps: int) -> None:
        from ludus.learn.networks.follow import follow  # here, because it loads torch

        follow(networks.targets["critics_target"], networks.trained["critics"], self.config.tau)

    def _continuous(self, view: ReplayView) -> Iterator[Loss]:
        import torch

        networks, batch = view.networks, view.batch
        policy, critics = networks.policy, networks.trained["critics"]
        head: Any = policy.head
        assert batch is not None
        with torch.no_grad():
            alpha = self._alpha(networks)
            obs, next_obs = policy.scaled(batch.obs), policy.scaled(batch.next_obs)
            next_unit, next_logp = head.rsample(policy.model(next_obs)[0], view.generator)
            best = networks.targets["critics_target"](next_obs, next_unit).amin(0)
            target = batch.reward + batch.discount * (best - alpha * next_logp)
            unit = head.bounds.to_unit(batch.action)
        yield self._critic_loss(view, critics(obs, unit), target)
        if (view.num_steps + 1) % self.config.policy_every:
            return
        unit, logp = head.rsample(policy.model(obs)[0], view.generator)
        q = critics(obs, unit, is_frozen=True).min(0).values
        entropy = -view.mean(logp.detach())
        yield Loss(view.mean(alpha * logp - q), {"entropy": entropy, "alpha": alpha})
        if self.config.alpha is None:
            yield self._temperature_loss(view, logp.detach())

    def _by_passes(self, view: ReplayView, passes: SACPasses) -> Iterator[Loss]:
        """The same as `_continuous`, without torch's graph."""
        import torch

        networks, batch = view.networks, view.batch
        policy = networks.policy
        assert batch is not None
        is_due = (view.num_steps + 1) % self.config.policy_every == 0
        with torch.no_grad():
            alpha = passes.alpha(networks) if self.config.alpha is None else self.config.alpha
            obs, next_obs = policy.scaled(batch.obs).numpy(), policy.scaled(batch.next_obs).numpy()
            passes.act(view, next_obs, obs if is_due else None)
            loss, error = passes.critics_loss(view, obs, next_obs, alpha)
        if self.config.prioritised:
            loss = loss._replace(priority=torch.from_numpy(abs(error).mean(0)))
        yield loss
        if not is_due:
            return
        with torch.no_grad():
            loss, logp = passes.policy_loss(view, obs, alpha)
        yield loss
        if self.config.alpha is None:
            yield passes.temperature_loss(view, logp, self.target_entropy(policy.spec.action))

    def _discrete(self, view: ReplayView) -> Iterator[Loss]:
        import torch

        networks, batch = view.networks, view.batch
        policy, critics = networks.policy, networks.trained["critics"]
        assert batch is not None
        with torch.no_grad():
            alpha = self._alpha(networks)
            obs, next_obs = policy.scaled(batch.obs), policy.scaled(batch.next_obs)
            next_probs, next_logps = _choices(policy, next_obs, batch.next_mask)
            best = networks.targets["critics_target"](next_obs).amin(0)
            value = (next_probs * (best - alpha * next_logps)).sum(-1)
            target = batch.reward + batch.discount * value
        q = critics(obs)
        chosen = batch.action.view(1, -1, 1).expand(len(q), -1, 1)
        yield self._critic_loss(view, q.gather(-1, chosen).squeeze(-1), target)
        if (view.num_steps + 1) % self.config.policy_every:
            return
        probs, logps = _choices(policy, obs, batch.mask)
        with torch.no_grad():
            q = critics(obs).amin(0)
        logp = (probs * logps).sum(-1)
        metrics = {"entropy": -view.mean(logp.detach()), "alpha": alpha}
        yield Loss(view.mean(alpha * logp - (probs * q).sum(-1)), metrics)
        if self.config.alpha is None:
            yield self._temperature_loss(view, logp.detach())

    def _critic_loss(self, view: ReplayView, q: Tensor, target: Tensor) -> Loss:
        """`q` `[K, N]`: half of the squared errors, summed over critics."""
        error = q - target
        value = view.mean(error.square()) * (0.5 * len(q))
        with_priority = self.config.prioritised
        return Loss(
            value,
            {"q": view.mean(q.detach())},
            "critics",
            priority=error.detach().abs().mean(0) if with_priority else None,
        )

    def _temperature_loss(self, view: ReplayView, logp: Tensor) -> Loss:
        """Its gradient is that of its logarithm: entropy beyond the target lowers it."""
        temperature: Any = view.networks.trained["temperature"]
        assert view.batch is not None
        excess = logp + self.target_entropy(view.networks.policy.spec.action, view.batch.mask)
        return Loss(-temperature.log_alpha * view.mean(excess), {}, "temperature")

    def target_entropy(self, action: ActionSpec, mask: Any = None) -> Any:
        """In nats; of continuous actions in units of their bounds. With a mask `[N, choices]`, of each row."""
        if self.config.target_entropy is not None:
            return self.config.target_entropy
        if isinstance(action, Continuous):
            return -float(action.size)
        assert isinstance(action, Discrete)
        share = self.config.target_entropy_share
        return share * math.log(action.num_choices) if mask is None else share * mask.sum(-1).log()

    def _alpha(self, networks: Networks) -> Any:
        if self.config.alpha is not None:
            return self.config.alpha
        return networks.trained["temperature"]()


def _choices(policy: Policy, obs: Nest, mask: Any) -> tuple[Tensor, Tensor]:
    """Probabilities and their logarithms `[N, choices]`; of what a mask forbids, 0 and a finite number."""
    from ludus.learn.ops.distributions import FORBIDDEN

    logits = policy.model(obs)[0]
    logps = (logits if mask is None else logits.masked_fill(~mask, FORBIDDEN)).log_softmax(-1)
    return logps.exp(), logps


def random_phase(config: ReplayConfig, num_steps: int, hold: int) -> tuple[float, float]:
    """The share of random actions, and the key by which they are held: all random until there is enough to learn."""
    if num_steps >= config.min_size:
        return 0.0, 0.0
    key = 0 if hold == 1 else 1 + num_steps // (hold * config.num_envs) % _MAX_KEY
    return 1.0, float(key)
