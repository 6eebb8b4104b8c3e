"""VDN: agents learn from one reward, by the sum of their Q-values. https://arxiv.org/abs/1706.05296

Agents share one network, recurrent or not, and are learnt from together: what replay keeps is a row for each env
(`data/team.py`), and what it draws are sequences. QMIX (`qmix.py`) has a network in the place of the sum.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ludus.data import nest as nests
from ludus.data import team
from ludus.errors import ConfigError
from ludus.learn import ops
from ludus.learn.algorithms import sequences
from ludus.learn.algorithms.algorithm import Loss, Networks
from ludus.learn.algorithms.q_learning import QLearning, QLearningConfig
from ludus.learn.algorithms.replay_algorithm import ReplayItems, ReplayView
from ludus.learn.ops import value_errors
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ludus.core import EnvSpec
    from ludus.data.nest import Nest
    from ludus.data.segment import Segment
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.normaliser import Normaliser
    from ludus.learn.policies.policy import Policy, PolicySpec

__all__ = ["VDN", "VDNConfig"]


@dataclass(frozen=True, kw_only=True)
class VDNConfig(QLearningConfig):
    num_steps: int = option(20, help="steps of each environment between updates; a sequence starts there", minimum=1)
    batch_size: int = option(32, help="transitions, or sequences, of one gradient step", minimum=1)
    updates_per_step: float = option(0.05, help="gradient steps for each environment step; 0: no limit", minimum=0.0)
    tau: float = option(0.01, help="how far target networks move at each gradient step", minimum=0.0, maximum=1.0)
    sequence_length: int = option(20, help="steps of a sequence, those of burn_in included", minimum=1)
    burn_in: int = option(0, help="first steps of a sequence, from which only the state is computed", minimum=0)
    eta: float = option(
        0.9,
        help="priority of a sequence: this much of its largest error, the rest of the mean",
        minimum=0.0,
        maximum=1.0,
    )
    team_reward: str = option(
        "mean", help="what is learnt from, of the rewards of an env's agents", choices=team.REWARDS
    )
    limit_ends: bool = option(
        True, help="episodes that are cut off count as ended; no: the value of their final observation counts"
    )
    agent_ids: bool = option(True, help="agents see which one they are, one-hot in their observations")


V = TypeVar("V", bound=VDNConfig)


class VDN(QLearning[V]):
    """`networks.targets["target"]` is a copy of the policy's model. A team's value is made by `mix`."""

    Config: ClassVar[type[VDNConfig]] = VDNConfig
    group = "env"
    is_cooperative = True
    learns_from = "sequences"
    moves: ClassVar[str | tuple[str, ...]] = "policy"  # the networks that its loss is of

    def __init__(self, config: V, *, num_agents: int = 1, global_state: Nest = None) -> None:
        super().__init__(config, num_agents=num_agents, global_state=global_state)
        if config.burn_in >= config.sequence_length:
            raise ConfigError(
                f"burn_in={config.burn_in} leaves nothing to learn from of sequence_length={config.sequence_length}."
            )

    def policy_spec(self, env: EnvSpec, network: NetworkConfig) -> PolicySpec:
        hidden = (64, 64) if network.recurrent == "none" else (64,)
        spec = super().policy_spec(env, network.or_else(hidden=hidden, activation="relu"))
        return dataclasses.replace(spec, head="epsilon_greedy")

    def networks(self, policy: Policy) -> Networks:
        return Networks(policy=policy, targets={"target": copy.deepcopy(policy.model)})

    def items(self) -> ReplayItems:
        config = self.config
        return ReplayItems(kind="sequence", length=config.sequence_length - config.burn_in, burn_in=config.burn_in)

    def prepare(self, segment: Segment) -> Segment:
        joined = team.join_agents(segment, self.num_agents, reward=self.config.team_reward)
        if self.config.limit_ends:
            joined.terminated |= joined.truncated
            joined.truncated[...] = False
        return joined

    def normalised(self, networks: Networks, segment: Segment) -> Iterator[tuple[Normaliser, Nest]]:
        if networks.policy.normaliser is not None:
            yield networks.policy.normaliser, segment.obs["obs"]

    def losses(self, view: ReplayView) -> Iterator[Loss]:
        segment, networks, config = view.segment, view.networks, self.config
        assert segment is not None
        start = min(config.burn_in, segment.num_steps - 1)
        obs = networks.policy.scaled(segment.obs["obs"])
        outputs = self._unroll(networks.policy.model, obs, segment, start)
        seen = self._seen(networks, segment, obs, start)
        target = self._targets(view, obs, seen, outputs.detach(), start)
        counts = segment.obs["active"][start:-1]
        each = outputs[:-1].gather(-1, segment.action[start:].unsqueeze(-1)).squeeze(-1) * counts
        q = self.mix(networks, each, nests.map(lambda leaf: None if leaf is None else leaf[:-1], seen))
        active = segment.active[start:-1].to(q.dtype)
        loss = sequences.mean(self.weight(q, target) * value_errors.huber(q, target, config.huber), active, view)
        q = q.detach()
        priority = sequences.priority(q - target, active, config.eta) if config.prioritised else None
        yield Loss(loss, {"q": sequences.mean(q, active, view)}, self.moves, priority=priority)

    def after_step(self, networks: Networks, num_steps: int) -> None:
        self.move_target(networks.targets["target"], networks.policy.model, num_steps)

    # --- what QMIX has of its own

    def mix(self, networks: Networks, q: Tensor, seen: Nest, *, is_target: bool = False) -> Tensor:
        """Values of teams `[T, B]` from those of their agents `[T, B, A]`, which are 0 for agents that do not count."""
        return q.sum(-1)

    def central(self, networks: Networks) -> nn.Module | None:
        """The `Central` that mixes, if there is one."""
        return None

    def weight(self, q: Tensor, target: Tensor) -> Tensor | float:
        """What the error of each step counts."""
        return 1.0

    # --- parts of the loss

    def _targets(self, view: ReplayView, obs: Nest, seen: Nest, outputs: Tensor, start: int) -> Tensor:
        """Returns of n steps `[T - start, B]` of teams; fewer where the sequence is over."""
        import torch  # here, because settings are shown without it

        config, segment, networks = self.config, view.segment, view.networks
        assert segment is not None
        head: Any = networks.policy.head
        with torch.no_grad():
            of_target = self._unroll(networks.targets["target"], obs, segment, start)
            mask = None if segment.mask is None else segment.mask[start:].unflatten(-1, (self.num_agents, -1))
            best = head.best(outputs if config.double else of_target, mask)
            each = of_target.gather(-1, best.unsqueeze(-1)).squeeze(-1) * segment.obs["active"][start:]
            value = self.mix(networks, each, seen, is_target=True)
            target: Tensor = ops.n_step_returns(
                segment.reward[start:], value, segment.terminated[start:], segment.truncated[start:],
                segment.active[start:], sequences.episode_starts(segment)[start:], gamma=config.gamma, n=config.n_step,
            )  # fmt: skip
            return target

    def _seen(self, networks: Networks, segment: Segment, obs: Nest, start: int) -> Nest:
        """By what mixes, `[T + 1 - start, B, ...]`; `None` if nothing does."""
        central: Any = self.central(networks)
        if central is None:
            return None
        seen = central.seen(obs, segment.obs.get("global_state"))
        return nests.map(lambda leaf: leaf[start:], seen) if start else seen

    def _unroll(self, model: Any, obs: Nest, segment: Segment, start: int) -> Tensor:
        """Q-values `[T + 1 - start, B, A, choices]` of all agents, by one pass over their rows."""
        num_steps, num_envs = segment.first.shape
        if getattr(model, "state_spec", None) is None:
            outputs, _ = model(nests.map(lambda leaf: leaf[start:].flatten(0, 2), obs))
        else:
            rows = nests.map(lambda leaf: leaf.flatten(1, 2), obs)
            state = nests.map(lambda leaf: None if leaf is None else leaf.flatten(0, 1), segment.state)
            first = segment.first.repeat_interleave(self.num_agents, 1)
            outputs, _ = sequences.unroll(model, rows, state, first, start)
        each: Tensor = outputs.view(num_steps - start, num_envs, self.num_agents, -1)
        return each
