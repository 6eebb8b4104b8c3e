"""What an algorithm is: settings, targets and a loss. A `Learner` does the rest, wherever samples come from.

    class MyAlgorithm(ActorCritic):
        def targets(self, sample):                         # once for each sample, without gradients
            segment = sample.segment
            advantage, value_target = ops.gae(segment.reward, sample.values(), *segment.ends, gamma=0.99, lam=0.95)
            return {"advantage": advantage, "value_target": value_target}

        def loss(self, view):                              # for each minibatch of it, with gradients
            logp, entropy = view.head.logp_and_entropy(view.params, view.action, view.mask)
            ...
            return loss, {"entropy": view.mean(entropy)}

One update, as the learner runs it; `networks = algorithm.networks(policy)` was called once, at the start:

    targets = algorithm.targets(sample)
    for view in minibatches:                               # of each epoch, in a new order
        for loss in algorithm.losses(view):                # each is stepped before the next one is asked for
            loss.value.backward()
            for network in loss.networks:
                optimisers[network].step()
        algorithm.after_step(networks, num_gradient_steps)

Algorithms that learn from replay are `ReplayAlgorithm`s (`replay_algorithm.py`): they are given transitions or
sequences that were drawn from a table, and their losses compute all they need.

This file and those of the algorithms load without torch, so that their settings can be shown at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ludus.core import EnvSpec
    from ludus.data.nest import Nest
    from ludus.data.segment import Segment
    from ludus.learn.algorithms.sample import SampleView
    from ludus.learn.networks.config import NetworkConfig
    from ludus.learn.policies.normaliser import Normaliser
    from ludus.learn.policies.policy import Policy, PolicySpec
    from ludus.learn.search.settings import SearchSettings

__all__ = ["Algorithm", "AlgorithmConfig", "Loss", "Networks", "SegmentConfig", "View"]


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """What every algorithm has. Its own settings are a subclass beside it, of this one or of `SegmentConfig`."""

    num_envs: int = option(16, help="environments of one simulator, in all its groups", minimum=1)
    num_steps: int = option(128, help="steps of each environment in one segment", minimum=1)
    gamma: float = option(0.99, help="discount of a reward one step later", minimum=0.0, maximum=1.0)
    learning_rate: float = option(3e-4, help="learning rate of Adam", minimum=0.0)
    anneal: bool = option(False, help="decay the learning rate linearly to zero over the run")
    max_grad_norm: float = option(0.5, help="gradient-norm clip; 0 disables it", minimum=0.0)
    reward_scale: float = option(1.0, help="rewards are multiplied by this before they are learnt from")
    normalise_obs: bool = option(True, help="normalise float observations to mean 0 and std 1")
    adam_eps: float = option(1e-5, help="epsilon of Adam", minimum=0.0)
    precision: str = option("float32", help="precision of forward passes in training", choices=("float32", "bfloat16"))


@dataclass(frozen=True, kw_only=True)
class SegmentConfig(AlgorithmConfig):
    """What algorithms have that learn from each segment once, in epochs of minibatches."""

    num_epochs: int = option(1, help="passes over each batch", minimum=1)
    minibatch_size: int = option(0, help="environment steps of one gradient step; 0: the whole batch", minimum=0)
    batch_segments: int = option(1, help="segments of one update, in the async flow", minimum=1)
    accumulate: int = option(1, help="split each minibatch into this many parts, to need less memory", minimum=1)


C = TypeVar("C", bound=AlgorithmConfig)


@dataclass(kw_only=True)
class Networks:
    """What a learner trains, moves and saves. A name is used once over `trained` and `targets`."""

    policy: Policy  # acts and is published; in `Loss.network` its name is "policy"
    trained: dict[str, nn.Module] = field(default_factory=dict)  # critics, mixers, ...: each has its own optimiser
    value_model: nn.Module | None = None  # that estimates values, if it is not the policy's; it has `rescale_value`
    targets: dict[str, nn.Module] = field(default_factory=dict)  # without gradients; moved by `Algorithm.after_step`
    workspace: dict[str, Any] = field(default_factory=dict)  # what an algorithm keeps of them; not part of a checkpoint


@dataclass(kw_only=True)
class View:
    """A minibatch, after the forward pass. Leading axes are `[N]`, all active; or `[T, R]` where `needs_time`."""

    head: Any  # of `ops.distributions`
    params: Any  # of the distribution, with gradients
    value: Any  # with gradients; `[T + 1, R]` where `needs_time`
    action: Any
    logp: Any  # under the policy that chose the action
    mask: Any = None
    weight: Any = None  # what each step counts in a mean; `None`: all the same
    targets: dict[str, Any] = field(default_factory=dict)  # of `Algorithm.targets`, or set by a loss that sees time
    segment: Segment | None = None  # of tensors, where minibatches are whole rows
    row: Any = None  # the row of the sample that each step is from, where the sample has keys
    team_obs: Nest = None  # of `group` "env": the observations, `[N / A, A, ...]` or `[T, R / A, A, ...]`
    global_state: Nest = None  # of the same envs, if they have one
    networks: Any = None  # those of `Algorithm.networks`
    reduce: Any = None  # sums a tensor over trainer ranks, in place

    def mean(self, x: Tensor) -> Tensor:
        """Over the steps that count; on several ranks, this rank's share of it."""
        return x.mean() if self.weight is None else (x * self.weight).sum()

    def normalise(self, x: Tensor) -> Tensor:
        """`x`, without gradients, brought to mean 0 and std 1 over the steps that count, of all ranks.

        Where gradients are accumulated, over those of this part.
        """
        sums = x.new_zeros(3)
        sums[0], sums[1], sums[2] = self.mean(x.new_ones(x.shape)), self.mean(x), self.mean(x * x)
        if self.reduce is not None:
            self.reduce(sums)
        mean, square = sums[1:] / sums[0].clamp(min=1e-12)
        return (x - mean) / ((square - mean * mean).clamp(min=0.0).sqrt() + 1e-8)


class Loss(NamedTuple):
    """What one network, or several together, descend in one step."""

    value: Any  # a tensor with gradients; a number where `has_gradient`
    metrics: dict[str, Any]  # numbers, or tensors of one element
    network: str | tuple[str, ...] = "policy"  # or of `Networks.trained`; of several, each gradient is clipped alone
    priority: Tensor | None = None  # of each step of the view, for a replay table: its largest is the row's
    has_gradient: bool = False  # from replay only: it is in `.grad` of the network's parameters already

    @property
    def networks(self) -> tuple[str, ...]:
        return (self.network,) if isinstance(self.network, str) else self.network


class Algorithm(Generic[C]):
    """Stateless but for its settings."""

    Config: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    needs_time: ClassVar[bool] = False  # minibatches are whole rows, because the loss looks along time
    default_flow: ClassVar[str] = "sync"
    learns_from: ClassVar[str] = "segments"  # or, from replay: "transitions", "sequences"
    group: ClassVar[str] = "row"  # "env": it learns from the agents of an env together, so their rows stay together
    is_cooperative: ClassVar[bool] = False  # agents learn to win together: none of them is an opponent
    searches: ClassVar[bool] = False  # a tree search chooses the moves in training: see `search`
    unused: ClassVar[frozenset[str]] = frozenset()  # settings that `Config` inherits and that do nothing: no options

    def __init__(self, config: C, *, num_agents: int = 1, global_state: Nest = None) -> None:
        """`num_agents`: of each env; `global_state`: the spec of its own, if any, for algorithms of `group` "env"."""
        self.config = config
        self.num_agents = num_agents
        self.global_state = global_state

    def policy_spec(self, env: EnvSpec, network: NetworkConfig) -> PolicySpec:
        """The policy that it trains in `env`."""
        from ludus.learn.policies.policy import PolicySpec  # here, because it loads torch

        return PolicySpec(obs=env.obs, action=env.action, network=network, normalise_obs=self.config.normalise_obs)

    def networks(self, policy: Policy) -> Networks:
        """The policy, and what is trained or moved beside it. torch is seeded: all ranks make the same networks."""
        return Networks(policy=policy)

    def search(self) -> SearchSettings | None:
        """The tree search that chooses in training, whose policy is `Segment.extra`; `None`: the policy itself does."""
        return None

    def prepare(self, segment: Segment) -> Segment:
        """What is learnt from, of a segment as it was collected: what replay keeps, or a learner is given."""
        return segment

    def normalised(self, networks: Networks, segment: Segment) -> Iterator[tuple[Normaliser, Nest]]:
        """Normalisers, and what each takes in of a prepared segment: after learning; of replay, before it."""
        if networks.policy.normaliser is not None:
            yield networks.policy.normaliser, segment.obs

    def targets(self, sample: SampleView) -> dict[str, Tensor]:
        """Tensors `[T, R, ...]` for the losses, computed once for each sample, without gradients.

        Not called where `needs_time`: there the loss sees all that it needs.
        """
        raise NotImplementedError(f"{type(self).__name__} must define targets")

    def loss(self, view: View) -> tuple[Tensor, dict[str, Any]]:
        """What the policy descends, and metrics: numbers, or tensors of one element."""
        raise NotImplementedError(f"{type(self).__name__} must define loss or losses")

    def losses(self, view: Any) -> Iterator[Loss]:
        """One for each step of an optimiser, in order: `loss` for the policy, unless an algorithm has others.

        `view` is a `View`; of algorithms that learn from replay, a `ReplayView`.

        The parameters of `Loss.network` alone are moved, whatever else the gradient reaches: one network's, or those of
        several, which one backward pass then moves. With several losses `accumulate` must be 1.
        """
        yield Loss(*self.loss(view))

    def after_step(self, networks: Networks, num_steps: int) -> None:
        """After each minibatch, without gradients; `num_steps` of them so far. Target networks are moved here."""
