"""Algorithms that learn from replay: what they share, and what their losses are given.

    class MyQLearning(ReplayAlgorithm[MyConfig]):
        def networks(self, policy):                            # the policy's outputs are Q-values
            return Networks(policy=policy, targets={"target": copy.deepcopy(policy)})

        def losses(self, view):                                # one minibatch of `batch_size`
            batch, networks = view.batch, view.networks
            best = networks.targets["target"].outputs(batch.next_obs).amax(-1)
            target = batch.reward + batch.discount * best
            q = networks.policy.outputs(batch.obs).gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
            error = q - target.detach()
            yield Loss(view.mean(error.square()), {"q": view.mean(q)}, priority=error.abs())

        def after_step(self, networks, num_steps):
            follow(networks.targets["target"], networks.policy, self.config.tau)

This file and those of the algorithms load without torch, so that their settings can be shown at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ludus.learn.algorithms.algorithm import Algorithm, AlgorithmConfig, Loss, Networks
from ludus.options import option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ludus.core import EnvSpec
    from ludus.data.segment import Segment
    from ludus.data.transitions import Transitions
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.policy import PolicySpec

__all__ = ["ReplayAlgorithm", "ReplayConfig", "ReplayItems", "ReplayView"]


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(AlgorithmConfig):
    """What every algorithm has that learns from replay."""

    num_envs: int = option(8, help="environments of one simulator, in all its groups", minimum=1)
    num_steps: int = option(1, help="steps of each environment between updates", minimum=1)
    batch_size: int = option(256, help="transitions, or sequences, of one gradient step", minimum=1)
    capacity: int = option(100_000, help="steps that are kept; the oldest are dropped", minimum=2)
    min_size: int = option(1_000, help="steps before the first update; until then actions are random", minimum=1)
    updates_per_step: float = option(1.0, help="gradient steps for each environment step; 0: no limit", minimum=0.0)
    n_step: int = option(1, help="steps of rewards in a target", minimum=1)
    prioritised: bool = option(False, help="draw by the size of the last error instead of uniformly")
    priority_exponent: float = option(0.6, help="prioritised: 0 is uniform, 1 proportional", minimum=0.0)
    importance_exponent: float = option(
        0.4, help="prioritised: correction of the bias in the beginning; 1 at the end", minimum=0.0, maximum=1.0
    )
    tau: float = option(0.005, help="how far target networks move at each gradient step", minimum=0.0, maximum=1.0)
    max_grad_norm: float = option(10.0, help="gradient-norm clip; 0 disables it", minimum=0.0)
    normalise_rewards: bool = option(True, help="learn in units of the returns seen so far")


R = TypeVar("R", bound=ReplayConfig)


@dataclass(frozen=True, kw_only=True)
class ReplayItems:
    """What a table is of: a "transition" of `length` rewards, or a "sequence" of `burn_in` and `length` steps."""

    kind: str
    length: int
    burn_in: int = 0


@dataclass(kw_only=True)
class ReplayView:
    """One minibatch, as tensors, before any forward pass. Rewards are scaled; observations are not."""

    networks: Networks
    batch: Transitions | None = None  # `[B]`, where `learns_from` is "transitions"
    segment: Segment | None = None  # `[T, B]`, where it is "sequences"
    weight: Any = None  # `[B]` importance of each row, at most 1; `None`: all the same
    num_steps: int = 0  # gradient steps before this one
    share: float = 1.0  # of this trainer in a mean over all ranks
    generator: Any = None  # torch's, for all that is random: a resumed run draws the same

    def shares(self, num_rows: int) -> NDArray[np.float32]:
        """What each row counts in a mean, as an array."""
        import numpy as np

        share = np.float32(self.share / num_rows)
        if self.weight is None:
            return np.full(num_rows, share)
        weighted: NDArray[np.float32] = self.weight.numpy() * share
        return weighted

    def mean(self, x: Tensor) -> Tensor:
        """Over rows `[B]`, or over the last axis of more, weighted by their importance; this rank's share of it."""
        mean = x.mean() if self.weight is None else (x * self.weight).mean()
        return mean if self.share == 1.0 else mean * self.share


class ReplayAlgorithm(Algorithm[R]):
    """Stateless but for its settings. `losses` is given minibatches of what a table drew."""

    Config: ClassVar[type[ReplayConfig]] = ReplayConfig
    default_flow: ClassVar[str] = "replay"
    learns_from: ClassVar[str] = "transitions"

    def policy_spec(self, env: EnvSpec, network: NetworkConfig) -> PolicySpec:
        return dataclasses.replace(super().policy_spec(env, network), has_value=False)

    def exploration(self, num_steps: int, progress: float) -> tuple[float, ...]:
        """What the policy's head explores by, after so many steps of envs; as many numbers as `Head.num_explore`."""
        return ()

    def items(self) -> ReplayItems:
        """What is drawn for it."""
        return ReplayItems(kind="transition", length=self.config.n_step)

    def exploration_exponents(self, num_rows: int) -> NDArray[np.float32] | None:
        """The powers by which rows explore, of all simulators together: `Head.spread_exploration`. None: all alike."""
        return None

    def losses(self, view: ReplayView) -> Iterator[Loss]:
        """One for each step of an optimiser, in order. The parameters of `Loss.network` alone are moved."""
        raise NotImplementedError(f"{type(self).__name__} must define losses")
