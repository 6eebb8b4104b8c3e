"""R2D2: DQN with state, learnt from sequences whose first steps only warm it up. https://openreview.net/pdf?id=r1lyTjAqYX"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.errors import ConfigError
from ludus.learn import ops
from ludus.learn.algorithms import sequences
from ludus.learn.algorithms.algorithm import Loss
from ludus.learn.algorithms.dqn import DQN, DQNConfig
from ludus.learn.algorithms.replay_algorithm import ReplayItems, ReplayView
from ludus.learn.ops import value_errors
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.core import EnvSpec
    from ludus.data.nest import Nest
    from ludus.data.segment import Segment
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.policy import PolicySpec

__all__ = ["R2D2", "R2D2Config"]


@dataclass(frozen=True, kw_only=True)
class R2D2Config(DQNConfig):
    num_steps: int = option(20, help="steps of each environment between updates; a sequence starts there", minimum=1)
    batch_size: int = option(32, help="transitions, or sequences, of one gradient step", minimum=1)
    updates_per_step: float = option(0.1, help="gradient steps for each environment step; 0: no limit", minimum=0.0)
    prioritised: bool = option(True, help="draw by the size of the last error instead of uniformly")
    sequence_length: int = option(40, help="steps of a sequence, those of burn_in included", minimum=2)
    burn_in: int = option(10, help="first steps of a sequence, from which only the state is computed", minimum=0)
    eta: float = option(
        0.9,
        help="priority of a sequence: this much of its largest error, the rest of the mean",
        minimum=0.0,
        maximum=1.0,
    )
    rescale: bool = option(False, help="learn square roots of values, for returns of very different sizes")


class R2D2(DQN[R2D2Config]):
    Config = R2D2Config
    learns_from = "sequences"

    def __init__(self, config: R2D2Config, *, num_agents: int = 1) -> None:
        super().__init__(config, num_agents=num_agents)
        if config.burn_in >= config.sequence_length:
            raise ConfigError(
                f"burn_in={config.burn_in} leaves nothing to learn from of sequence_length={config.sequence_length}."
            )
        if config.distribution != "none":
            raise ConfigError(f"distribution={config.distribution} is not for r2d2: use dqn.")

    def policy_spec(self, env: EnvSpec, network: NetworkConfig) -> PolicySpec:
        """With an LSTM, unless the network has another state."""
        if network.recurrent == "none" and network.model is None:
            network = dataclasses.replace(network, recurrent="lstm")
        return super().policy_spec(env, network.or_else(hidden=(128,)))

    def items(self) -> ReplayItems:
        config = self.config
        return ReplayItems(kind="sequence", length=config.sequence_length - config.burn_in, burn_in=config.burn_in)

    def losses(self, view: ReplayView) -> Iterator[Loss]:
        segment, policy, config = view.segment, view.networks.policy, self.config
        assert segment is not None
        start = min(config.burn_in, segment.num_steps - 1)
        obs = policy.scaled(segment.obs)
        outputs = self._unroll(policy.model, obs, segment, start)
        target = self._targets(view, obs, outputs.detach(), start)
        q = outputs[:-1].gather(-1, segment.action[start:].unsqueeze(-1)).squeeze(-1)
        active = segment.active[start:-1].to(q.dtype)
        loss = sequences.mean(value_errors.huber(q, target, config.huber), active, view)
        q = q.detach()
        priority = sequences.priority(q - target, active, config.eta)
        yield Loss(loss, {"q": sequences.mean(q, active, view)}, priority=priority)

    def _unroll(self, model: Any, obs: Nest, segment: Segment, start: int) -> Tensor:
        """Q-values `[T + 1 - start, B, choices]`."""
        return self._joined(*sequences.unroll(model, obs, segment.state, segment.first, start))

    def _targets(self, view: ReplayView, obs: Nest, outputs: Tensor, start: int) -> Tensor:
        """Returns of n steps `[T - start, B]`; fewer where the sequence is over."""
        import torch

        config, segment, head = self.config, view.segment, view.networks.policy.head
        assert segment is not None
        with torch.no_grad():
            of_target = self._unroll(view.networks.targets["target"], obs, segment, start)
            mask = None if segment.mask is None else segment.mask[start:]
            best = head.best(outputs if config.double else of_target, mask)  # type: ignore[attr-defined]
            value = of_target.gather(-1, best.unsqueeze(-1)).squeeze(-1)
            if config.rescale:
                value = value_errors.unscaled(value)
            target = ops.n_step_returns(
                segment.reward[start:], value, segment.terminated[start:], segment.truncated[start:],
                segment.active[start:], sequences.episode_starts(segment)[start:], gamma=config.gamma, n=config.n_step,
            )  # fmt: skip
            return value_errors.rescaled(target) if config.rescale else target
