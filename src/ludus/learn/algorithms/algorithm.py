"""What an algorithm is: settings, targets and a loss. A `Learner` does the rest, whoever collects the segments.

    class MyAlgorithm(Algorithm):
        def targets(self, segment, value, reduce=None):    # once for each segment, without gradients
            advantage, value_target = ops.gae(...)
            return {"advantage": advantage, "value_target": value_target}

        def loss(self, view):                              # for each minibatch of it
            logp, entropy = view.head.logp_and_entropy(view.params, view.action, view.mask)
            ...
            return loss, {"entropy": view.mean(entropy)}

This file and those of the algorithms load without torch, so that their settings can be shown at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.core import WorldSpec
    from ludus.data.segment import Segment
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.policy import PolicySpec

__all__ = ["Algorithm", "AlgorithmConfig", "View"]


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """What every algorithm has. An algorithm's own settings are a subclass beside it, with its own defaults."""

    num_envs: int = option(16, help="environments of one simulator, in all its groups", minimum=1)
    num_steps: int = option(128, help="steps of each environment in one segment", minimum=1)
    gamma: float = option(0.99, help="discount of a reward one step later", minimum=0.0, maximum=1.0)
    learning_rate: float = option(3e-4, help="step size of Adam", minimum=0.0)
    anneal: bool = option(False, help="let the step size fall to zero over the run")
    num_epochs: int = option(1, help="passes over each batch", minimum=1)
    minibatch_size: int = option(0, help="environment steps of one gradient step; 0: the whole batch", minimum=0)
    batch_segments: int = option(1, help="segments of one update, in the async flow", minimum=1)
    accumulate: int = option(1, help="parts in which each minibatch is worked on, to need less memory", minimum=1)
    max_grad_norm: float = option(0.5, help="gradient-norm clip; 0 disables it", minimum=0.0)
    reward_scale: float = option(1.0, help="rewards are multiplied by this before they are learnt from")
    normalise_obs: bool = option(True, help="bring float observations to mean 0 and std 1")
    adam_eps: float = option(1e-5, help="epsilon of Adam", minimum=0.0)
    precision: str = option("float32", help="of forward passes in training", choices=("float32", "bfloat16"))


C = TypeVar("C", bound=AlgorithmConfig)


@dataclass(kw_only=True)
class View:
    """A minibatch, after the forward pass. Leading axes are `[N]`, all active; or `[T, R]` where `needs_time`."""

    head: Any  # of `ops.distributions`
    params: Any  # of the distribution, with gradients
    value: Any  # with gradients; `[T + 1, R]` where `needs_time`
    action: Any
    logp: Any  # under the policy that chose the action
    mask: Any = None
    weight: Any = None  # `[T, R]` what each step counts in a mean; `None`: all the same
    targets: dict[str, Any] = field(default_factory=dict)  # of `Algorithm.targets`, or set by a loss that sees time
    segment: Segment | None = None  # of tensors, where `needs_time`
    reduce: Any = None  # sums a tensor over trainer ranks, in place

    def mean(self, x: Tensor) -> Tensor:
        """Over the steps that count; on several ranks, this rank's share of it."""
        return x.mean() if self.weight is None else (x * self.weight).sum()

    def normalise(self, x: Tensor) -> Tensor:
        """`x`, without gradients, brought to mean 0 and deviation 1 over the steps that count, of all ranks.

        Where gradients are accumulated, over those of this part.
        """
        sums = x.new_zeros(3)
        sums[0], sums[1], sums[2] = self.mean(x.new_ones(x.shape)), self.mean(x), self.mean(x * x)
        if self.reduce is not None:
            self.reduce(sums)
        mean, square = sums[1:] / sums[0].clamp(min=1e-12)
        return (x - mean) / ((square - mean * mean).clamp(min=0.0).sqrt() + 1e-8)


class Algorithm(Generic[C]):
    """Stateless but for its settings."""

    Config: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    needs_time: ClassVar[bool] = False  # minibatches are whole rows, because the loss looks along time
    is_off_policy: ClassVar[bool] = False  # targets depend on the present policy, not only on its values
    default_flow: ClassVar[str] = "sync"

    def __init__(self, config: C) -> None:
        self.config = config

    def policy_spec(self, env: WorldSpec, network: NetworkConfig) -> PolicySpec:
        """The policy that it trains in `env`."""
        from ludus.learn.policies.policy import PolicySpec  # here, because it loads torch

        return PolicySpec(obs=env.obs, action=env.action, network=network, normalise_obs=self.config.normalise_obs)

    def targets(self, segment: Segment, value: Tensor, reduce: Any = None) -> dict[str, Tensor]:
        """`[T, R]` tensors for the losses, from `value [T + 1, R]`. `reduce(x)` sums x over trainer ranks, in place.

        Not called where `needs_time`: there the loss sees all that it needs.
        """
        raise NotImplementedError(f"{type(self).__name__} must define targets")

    def off_policy_targets(
        self, segment: Segment, value: Tensor, logp: Tensor, reduce: Any = None
    ) -> dict[str, Tensor]:
        """Instead of `targets` where `is_off_policy`; `logp [T, R]` is what the policy now says of the actions."""
        raise NotImplementedError(f"{type(self).__name__} must define off_policy_targets")

    def loss(self, view: View) -> tuple[Tensor, dict[str, Any]]:
        """What to go down, and figures for people: numbers, or tensors of one."""
        raise NotImplementedError(f"{type(self).__name__} must define loss")
