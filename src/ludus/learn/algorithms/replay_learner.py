"""The learner of algorithms that learn from replay: what a table drew in, the next version of a policy out.

learner = ReplayLearner(algorithm, policy, seed=1)
learner.explore(num_steps, progress)                 # how much the policy explores from here on
learner.observe(segment, "simulator/0")              # scales of observations and rewards
update = learner.update(Replayed(transitions, keys, weight))
update.priorities                                    # of these keys, for the table
"""

from __future__ import annotations

import collections
import contextlib
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.data.segment import Segment
from ludus.data.transitions import Transitions
from ludus.errors import ConfigError, TrainingError
from ludus.learn.algorithms.algorithm import Loss
from ludus.learn.algorithms.learner import Learner, Update
from ludus.learn.algorithms.replay_algorithm import ReplayAlgorithm, ReplayView
from ludus.learn.algorithms.reward_scale import RewardScale
from ludus.learn.algorithms.trained_networks import Ranks, TrainedNetworks
from ludus.learn.policies.policy import Policy

__all__ = ["AnyLearner", "ReplayLearner", "Replayed"]

_NOTHING = contextlib.nullcontext()


class Replayed(NamedTuple):
    """What a table drew, as NumPy arrays: `batch_size` rows for each gradient step that is to be made of it."""

    batch: Transitions | Segment
    keys: NDArray[np.int64] | None = None  # of the rows; `Update.priorities` are theirs
    weight: NDArray[np.float32] | None = None  # importance of each row


class ReplayLearner:
    """Owns the networks' parameters and their optimisers; the policy is what acts."""

    def __init__(
        self,
        algorithm: ReplayAlgorithm[Any],
        policy: Policy,
        *,
        seed: int = 0,
        ranks: Ranks | None = None,
        device: str = "cpu",
    ) -> None:
        self.algorithm = algorithm
        self.policy = policy.to(device)
        self.version = 0
        self.num_gradient_steps = 0
        self._config = algorithm.config
        self._device = torch.device(device)
        self._is_on_cpu = self._device.type == "cpu"
        self._ranks = ranks
        self._reduce = ranks.sum_ if ranks is not None and ranks.size > 1 else None
        self._share = 1.0 if ranks is None else 1.0 / ranks.size
        self._rng = np.random.default_rng([seed, 0x1EA2])
        self._generator = torch.Generator(device).manual_seed(seed + (0 if ranks is None else ranks.rank))
        self._explored_by: tuple[float, ...] | None = None
        self._rewards = RewardScale(self._config.gamma) if self._config.normalise_rewards else None
        self._trained = TrainedNetworks(algorithm, self.policy, seed=seed, device=device, ranks=ranks)
        self.networks = self._trained.networks

    # --- what is collected

    def explore(self, num_steps: int, progress: float) -> bool:
        """Set how much the policy explores, after so many steps of envs; whether that is a change."""
        if self.policy.exploration is None:
            return False
        values = self.algorithm.exploration(num_steps, progress)
        if values == self._explored_by:
            return False
        self.policy.exploration.copy_(torch.tensor(values, dtype=torch.float32))
        self._explored_by = values
        return True

    def observe(self, segment: Segment, stream: str) -> None:
        """Take the scales of what was collected, as the algorithm prepared it, before it is learnt from.

        `stream` names who plays.
        """
        for normaliser, seen in self.algorithm.normalised(self.networks, segment):
            normaliser.update(nests.map(self._tensor, seen), self._reduce)
        if self._rewards is not None:
            self._rewards.observe(segment, stream)

    # --- learning

    def update(self, sample: Replayed, *, progress: float = 0.0) -> Update:
        """Make one gradient step of each `batch_size` rows; `progress` is the fraction of the run that is over."""
        self._trained.anneal(progress)
        num_rows, size = sample.batch.num_rows, self._config.batch_size
        num_steps = max(1, num_rows // size)
        if num_rows % size and num_steps > 1:
            raise ConfigError(f"{num_rows} rows are not a multiple of batch_size={size}")
        whole = self._tensors(sample.batch)
        weight = None if sample.weight is None else self._tensor(sample.weight)
        sums: dict[str, float] = collections.defaultdict(float)
        priorities: list[torch.Tensor] = []
        with self._trained.training(self._rng) if self.policy.has_modes else _NOTHING:
            for number in range(num_steps):
                part = slice(None) if num_steps == 1 else slice(number * size, (number + 1) * size)
                view = self._view(whole, part, None if weight is None else weight[part])
                priority = self._step(view, sums)
                if priority is not None:
                    priorities.append(priority)
        self.version += 1
        metrics = {name: total / num_steps for name, total in sums.items()}
        metrics = self._reduced(metrics)
        self._expect_finite(metrics)
        if self._rewards is not None:
            metrics["reward_scale"] = self._rewards.value
        has_priorities = sample.keys is not None and priorities
        return Update(metrics, torch.cat(priorities).cpu().numpy() if has_priorities else None)

    def _step(self, view: ReplayView, sums: dict[str, float]) -> torch.Tensor | None:
        """One minibatch: a step of an optimiser for each loss. Returns the priorities of its rows, if any."""
        priority: torch.Tensor | None = None
        for loss in self.algorithm.losses(view):
            optimisers = [self._trained.optimisers[name] for name in loss.networks]
            if not loss.has_gradient:
                for optimiser in optimisers:
                    optimiser.zero_grad()
                loss.value.backward()
            _note(sums, loss, [optimiser.step(self._reduce) for optimiser in optimisers])
            if loss.priority is not None:
                priority = loss.priority.detach()
        self.num_gradient_steps += 1
        with torch.no_grad():
            self.algorithm.after_step(self.networks, self.num_gradient_steps)
        return priority

    def _view(self, whole: Transitions | Segment, part: slice, weight: torch.Tensor | None) -> ReplayView:
        view = ReplayView(
            networks=self.networks,
            weight=weight,
            num_steps=self.num_gradient_steps,
            share=self._share,
            generator=self._generator,
        )
        if isinstance(whole, Transitions):
            taken = whole
            if part != slice(None):
                taken = Transitions(
                    **{
                        name: nests.map(lambda leaf: None if leaf is None else leaf[part], value)
                        for name, value in whole.to_nest().items()
                    }
                )
            view.batch = taken
            return view
        view.segment = whole if part == slice(None) else _rows_of(whole, part)
        return view

    def _tensors(self, batch: Transitions | Segment) -> Any:
        kind = type(batch)
        tensors = kind(
            **{
                name: self._tensor(value) if isinstance(value, np.ndarray) else nests.map(self._tensor, value)
                for name, value in batch.to_nest().items()
            }
        )
        scale = self._config.reward_scale / (1.0 if self._rewards is None else self._rewards.value)
        if scale != 1.0:
            tensors.reward = tensors.reward * scale
        return tensors

    def _tensor(self, leaf: Any) -> Any:
        if leaf is None:
            return None
        array = leaf if leaf.flags.writeable else leaf.copy()
        tensor = torch.from_numpy(array)
        return tensor if self._is_on_cpu else tensor.to(self._device, non_blocking=True)

    # --- metrics

    def _reduced(self, metrics: dict[str, float]) -> dict[str, float]:
        """Each rank has its share of every mean; norms are those of the sum already."""
        if self._reduce is None:
            return metrics
        values = torch.tensor(list(metrics.values()), dtype=torch.float64, device=self._device)
        self._reduce(values)
        return {
            name: value * (self._share if name.endswith("gradient_norm") else 1.0)
            for name, value in zip(metrics, values.tolist(), strict=True)
        }

    def _expect_finite(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            if not np.isfinite(value):
                raise TrainingError(
                    f"the metric {name!r} is {value} after update {self.version}: training has diverged, or rewards or "
                    "observations that it learnt from are not finite. A smaller learning_rate or max_grad_norm may "
                    "help; the last checkpoint is valid."
                )

    # --- what a checkpoint holds

    def save(self) -> dict[str, Nest]:
        """Everything needed to go on exactly from here, as a nest for the codec."""
        return {
            **self._trained.save(),
            "rng": save_rng(self._rng),
            "generator": self._generator.get_state().numpy(),
            "rewards": None if self._rewards is None else self._rewards.save(),
            "version": self.version,
            "num_gradient_steps": self.num_gradient_steps,
        }

    def restore(self, saved: dict[str, Nest]) -> None:
        self._trained.restore(saved)
        self._explored_by = None
        restore_rng(self._rng, saved["rng"])
        self._generator.set_state(torch.from_numpy(np.array(saved["generator"])))
        if self._rewards is not None:
            self._rewards.restore(saved["rewards"])
        self.version = saved["version"]
        self.num_gradient_steps = saved["num_gradient_steps"]


def _note(sums: dict[str, float], loss: Loss, norms: list[float]) -> None:
    """A loss of several networks is that of the first."""
    prefixes = ["" if name == "policy" else f"{name}_" for name in loss.networks]
    sums[f"{prefixes[0]}loss"] += _number(loss.value)
    for prefix, norm in zip(prefixes, norms, strict=True):
        sums[f"{prefix}gradient_norm"] += norm
    for name, metric in loss.metrics.items():
        sums[name] += _number(metric)


def _number(value: Any) -> float:
    return float(value.detach() if isinstance(value, torch.Tensor) else value)


def _rows_of(segment: Segment, part: slice) -> Segment:
    """Some rows of a segment; recurrent state has them first, `version` not at all."""

    def take(name: str, value: Nest) -> Nest:
        if value is None or name in ("version", "global_state"):
            return value
        return nests.map(lambda leaf: None if leaf is None else leaf[part] if name == "state" else leaf[:, part], value)

    return Segment(**{name: take(name, value) for name, value in segment.to_nest().items()})


AnyLearner: TypeAlias = Learner | ReplayLearner
"""What owns a policy's parameters, whatever it learns from."""
