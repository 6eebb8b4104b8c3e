"""The learner: samples in, the next version of a policy out. The loop that all algorithms share.

    learner = Learner(algorithm, policy, seed=1)
    update = learner.update(Sample(segment))    # targets, epochs of shuffled minibatches, Adam
    update.metrics["loss"]
    learner.version                             # one more than before

On several ranks each learner is given its share of the rows and the same seed; `ranks` sums gradients over all, and
every rank makes the same step.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.data.segment import Segment
from ludus.errors import ConfigError, TrainingError
from ludus.learn import ops
from ludus.learn.algorithms.algorithm import Algorithm, Loss, View
from ludus.learn.algorithms.minibatches import Parts, minibatches
from ludus.learn.algorithms.sample import Sample, SampleView
from ludus.learn.algorithms.trained_networks import Ranks, TrainedNetworks
from ludus.learn.policies.policy import Policy

__all__ = ["Learner", "Ranks", "Sample", "Update"]

_LOG = logging.getLogger(__name__)
_FAR_ABOVE = 100.0  # times the clip
_HARDLY_CHANGED = 1e-5  # kl of an update, in nats
_MOST_FROZEN = 10


class Update(NamedTuple):
    """What an update did: means over its minibatches, and new priorities of the sample's keys if it has any."""

    metrics: dict[str, float]
    priorities: NDArray[np.float32] | None = None


class Learner:
    """Owns the networks' parameters, their optimisers and the order of minibatches; the policy is what acts."""

    def __init__(
        self,
        algorithm: Algorithm[Any],
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
        self._device = torch.device(device)
        self._ranks = ranks
        self._reduce = ranks.sum_ if ranks is not None and ranks.size > 1 else None
        self._config = algorithm.config
        self._num_frozen = 0  # updates in a row
        self._value_scale = policy.value_scale
        self._value_targets: list[tuple[torch.Tensor, torch.Tensor]] = []  # of this update, and where they count
        self._rng = np.random.default_rng([seed, 0x1EA2])
        self._trained = TrainedNetworks(algorithm, self.policy, seed=seed, device=device, ranks=ranks)
        self.networks = self._trained.networks

    # --- learning

    def update(self, sample: Sample, *, progress: float = 0.0) -> Update:
        """Learn from a sample of NumPy arrays; `progress` is the fraction of the run that is over, for schedules."""
        self._trained.anneal(progress)
        whole = self._view(sample)
        tally = _Tally(None if sample.keys is None else torch.zeros(sample.segment.num_rows, device=self._device))
        batches = minibatches(self.algorithm, whole, self._targets(whole), self._rng)
        with self._trained.training(self._rng):
            for parts in batches:
                self._step(parts, tally)
                self.num_gradient_steps += 1
                with torch.no_grad():
                    self.algorithm.after_step(self.networks, self.num_gradient_steps)
        if self._is_clipped_hard(tally) and "kl" not in tally.sums and "entropy" in tally.sums:
            tally.sums["kl"] += tally.num_minibatches * self._measure_kl(whole)
        # After learning: the next segment is by the new scales, and this one's ratios begin at 1.
        for normaliser, seen in self.algorithm.normalised(self.networks, whole.segment):
            normaliser.update(seen, self._reduce)
        self._update_value_scale()
        self.version += 1
        priorities = None if tally.priorities is None else tally.priorities.cpu().numpy()
        return Update(self._metrics(tally, sample.segment), priorities)

    def _step(self, parts: Parts, tally: _Tally) -> None:
        """One minibatch: a step of an optimiser for each loss."""
        for number, make_view in enumerate(parts):
            view = make_view()
            for index, loss in enumerate(self.algorithm.losses(view)):
                if index and len(parts) > 1:
                    raise ConfigError(
                        f"{type(self.algorithm).__name__} has several losses, each with a step of its own: gradients "
                        "cannot be accumulated over parts of a minibatch. Set accumulate=1."
                    )
                optimisers = {name: self._trained.optimisers[name] for name in loss.networks}
                if number == 0:
                    for optimiser in optimisers.values():
                        optimiser.zero_grad()
                loss.value.backward()
                if view.segment is not None and self.algorithm.needs_time:
                    self._note_targets(view.targets, view.segment.active[:-1])
                tally.add(loss, view)
                if number == len(parts) - 1:
                    for name, optimiser in optimisers.items():
                        prefix = "" if name == "policy" else f"{name}_"
                        tally.sums[f"{prefix}gradient_norm"] += optimiser.step(self._reduce)
        tally.num_minibatches += 1

    def _targets(self, whole: SampleView) -> dict[str, torch.Tensor]:
        if self.algorithm.needs_time:
            return {}
        with torch.no_grad():
            targets = self.algorithm.targets(whole)
            self._note_targets(targets, whole.segment.active[:-1])
            if whole.shift and "value_target" in targets:  # losses compare it with what the network gives
                targets["value_target"] = targets["value_target"] - whole.shift
        return targets

    def _view(self, sample: Sample) -> SampleView:
        def tensor(leaf: Any) -> Any:
            return None if leaf is None else torch.from_numpy(_writable(leaf)).to(self._device, non_blocking=True)

        prepared = self.algorithm.prepare(sample.segment)
        segment = Segment(**{name: nests.map(tensor, value) for name, value in prepared.to_nest().items()})
        if self._config.reward_scale != 1.0:
            segment.reward = segment.reward * self._config.reward_scale
        shift = 0.0
        if self._value_scale is not None:
            if not self._value_scale.is_known:
                self._begin_value_scale(segment)
            shift = self._value_scale.shift
            segment.reward = segment.reward / float(self._value_scale.std)
        return SampleView(
            segment=segment,
            networks=self.networks,
            weight=tensor(sample.weight),
            row=None if sample.keys is None else torch.arange(segment.num_rows, device=self._device),
            shift=shift,
            precision=self._config.precision,
            reduce=self._reduce,
        )

    # --- metrics

    def _metrics(self, tally: _Tally, segment: Segment) -> dict[str, float]:
        if not tally.sums:
            return {}
        values = torch.tensor(list(tally.sums.values()), dtype=torch.float64, device=self._device)
        if self._reduce is not None:
            self._reduce(values)
        metrics = dict(zip(tally.sums, (values / max(tally.num_minibatches, 1)).tolist(), strict=True))
        norms = [name for name in metrics if name.endswith("gradient_norm")]
        if self._ranks is not None:
            for name in norms:
                metrics[name] /= self._ranks.size
        self._expect_finite(metrics, ("loss", *norms), segment)
        self._warn_if_frozen(metrics)
        return metrics

    def _expect_finite(self, metrics: Mapping[str, float], names: tuple[str, ...], segment: Segment) -> None:
        name = next((name for name in names if not np.isfinite(metrics[name])), None)
        if name is None:
            return
        found = f"the {name.replace('_', ' ')} is {metrics[name]} after update {self.version}"
        if not all(_is_finite(leaf) for leaf in (segment.reward, *nests.leaves(segment.obs))):
            raise TrainingError(
                f"{found}: rewards or observations that it learnt from are not finite. Fix what produced them, no "
                "setting will help; the last checkpoint is valid."
            )
        raise TrainingError(
            f"{found}: training has diverged. A smaller learning_rate or max_grad_norm, or a reward_scale below 1, "
            "may help; the last checkpoint is valid."
        )

    def _is_clipped_hard(self, tally: _Tally) -> bool:
        """Whether the gradient norm was far above its limit."""
        norm = tally.sums.get("gradient_norm", 0.0) / max(tally.num_minibatches, 1)
        return bool(0.0 < self._config.max_grad_norm * _FAR_ABOVE < norm)

    def _measure_kl(self, whole: SampleView) -> float:
        """Between the policy that acted and that of now: this rank's share of it. It costs a forward pass."""
        with torch.no_grad():
            logp = whole.values_and_logp()[1]
            log_ratio = (logp - whole.segment.logp)[whole.segment.active[:-1]]
            kl = float((log_ratio.exp() - 1.0 - log_ratio).mean())
        return kl / (1 if self._ranks is None else self._ranks.size)

    def _warn_if_frozen(self, metrics: Mapping[str, float]) -> None:
        """Say once that clipping leaves the policy nothing to learn by."""
        limit, norm = self._config.max_grad_norm, metrics.get("gradient_norm", 0.0)
        is_frozen = 0.0 < limit * _FAR_ABOVE < norm and abs(metrics.get("kl", 1.0)) < _HARDLY_CHANGED
        self._num_frozen = self._num_frozen + 1 if is_frozen else 0
        if self._num_frozen == _MOST_FROZEN:
            _LOG.warning(
                "the policy hardly changes: in the last %d updates the gradient norm was far above max_grad_norm (now "
                "%.3g, clipped to %g) and the kl about 0 (%.1g). The value loss takes all of the gradient, because "
                "returns are large. Set normalise_returns=yes, or a smaller reward_scale.",
                _MOST_FROZEN, norm, limit, metrics["kl"],
            )  # fmt: skip

    # --- the scale of returns

    def _begin_value_scale(self, segment: Segment) -> None:
        """From the returns of the first segment, of which nothing is predicted yet."""
        assert self._value_scale is not None
        zeros = torch.zeros_like(segment.first, dtype=torch.float32)
        _, returns = ops.gae(segment.reward, zeros, *segment.ends, gamma=self._config.gamma, lam=1.0)
        self._value_scale.update(returns, segment.active[:-1], reduce=self._reduce)

    def _note_targets(self, targets: Mapping[str, torch.Tensor], active: torch.Tensor) -> None:
        if self._value_scale is not None and "value_target" in targets:
            self._value_targets.append((targets["value_target"].detach(), active))

    def _update_value_scale(self) -> None:
        if self._value_scale is None or not self._value_targets:
            return
        targets = torch.cat([target.flatten() for target, _ in self._value_targets])
        active = torch.cat([where.flatten() for _, where in self._value_targets])
        self._value_targets.clear()
        model = self.networks.value_model or self.policy.model
        self._value_scale.update(targets * float(self._value_scale.std), active, model, self._reduce)

    # --- what a checkpoint holds

    def save(self) -> dict[str, Nest]:
        """Everything needed to go on exactly from here, as a nest for the codec: all networks, optimisers and rng."""
        return {
            **self._trained.save(),
            "rng": save_rng(self._rng),
            "version": self.version,
            "num_gradient_steps": self.num_gradient_steps,
        }

    def restore(self, saved: dict[str, Nest]) -> None:
        self._trained.restore(saved)
        restore_rng(self._rng, saved["rng"])
        self.version = saved["version"]
        self.num_gradient_steps = saved["num_gradient_steps"]


class _Tally:
    """Sums of an update's metrics over its minibatches, and the largest priority of each row."""

    def __init__(self, priorities: torch.Tensor | None) -> None:
        self.sums: dict[str, float] = collections.defaultdict(float)
        self.num_minibatches = 0
        self.priorities = priorities

    def add(self, loss: Loss, view: View) -> None:
        self.sums["loss"] += float(loss.value.detach())
        for name, metric in loss.metrics.items():
            self.sums[name] += float(metric.detach() if isinstance(metric, torch.Tensor) else metric)
        if self.priorities is not None and loss.priority is not None:
            priority = loss.priority.detach().float()
            if view.segment is not None:
                priority = priority * view.segment.active[:-1]
            self.priorities.scatter_reduce_(0, view.row.flatten(), priority.flatten(), "amax")


def _is_finite(array: NDArray[Any]) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.flags.writeable else array.copy()
