"""The learner: segments in, the next version of a policy out. The loop that all algorithms share.

    learner = Learner(algorithm, policy, seed=1)
    figures = learner.update(segment)           # targets, epochs of shuffled minibatches, Adam
    learner.version                             # one more than before

On several ranks each learner is given its share of the rows and the same seed; `ranks` sums gradients over all, and
every rank makes the same step.
"""

from __future__ import annotations

import collections
import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.data.segment import Segment
from ludus.errors import DataError, TrainingError
from ludus.learn import ops
from ludus.learn.algorithms.adam import Adam
from ludus.learn.algorithms.algorithm import Algorithm, View
from ludus.learn.algorithms.flat import FlatParameters
from ludus.learn.policies.policy import Policy

__all__ = ["Learner", "Ranks"]

_LOG = logging.getLogger(__name__)
_FAR_ABOVE = 100.0  # times the clip
_HARDLY_CHANGED = 1e-5  # kl of an update, in nats
_MOST_FROZEN = 10


class Ranks(Protocol):
    """The other trainers. All of them call the same methods in the same order."""

    rank: int
    size: int

    def sum_(self, tensor: torch.Tensor) -> None:
        """Replace the tensor by its sum over all ranks."""
        ...


class Learner:
    """Owns the policy's parameters (they are moved into one tensor), the optimiser and the order of minibatches."""

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
        self._shift = 0.0  # to the network's values, in units of the present value scale
        self._value_targets: list[tuple[torch.Tensor, torch.Tensor]] = []  # of this update, and where they count
        self._rng = np.random.default_rng([seed, 0x1EA2])
        towers = getattr(policy.model, "towers", None)
        stacked, value_only = towers() if towers is not None else ([], [])
        self._flat = FlatParameters(policy, stacked=stacked, value_only=value_only)
        self._optimiser = Adam(
            self._flat.data, self._flat.grad, learning_rate=self._config.learning_rate, eps=self._config.adam_eps
        )

    # --- learning

    def update(self, segment: Segment, *, progress: float = 0.0) -> dict[str, float]:
        """Learn from a segment of NumPy arrays; `progress` is the part of the run that is over, for schedules."""
        if self._config.anneal:
            self._optimiser.learning_rate = self._config.learning_rate * (1.0 - min(progress, 1.0))
        tensors = self._tensors(segment)
        sums: dict[str, float] = collections.defaultdict(float)
        num_views = 0
        minibatches = self._minibatches(tensors)
        with self._training():
            for part in minibatches:
                self._flat.grad.zero_()
                for view in part:
                    loss, figures = self.algorithm.loss(view)
                    loss.backward()
                    if view.segment is not None and self.algorithm.needs_time:
                        self._note_targets(view.targets, view.segment.active[:-1])
                    sums["loss"] += float(loss.detach())
                    for name, figure in figures.items():
                        sums[name] += float(figure.detach() if isinstance(figure, torch.Tensor) else figure)
                num_views += 1
                if self._reduce is not None:
                    self._reduce(self._flat.grad)
                norm = self._flat.clip_(self._config.max_grad_norm)
                self._optimiser.step()
                self.num_gradient_steps += 1
                sums["gradient_norm"] += norm
        # After learning: the next segment is by the new scales, and this one's ratios begin at 1.
        if self.policy.normaliser is not None:
            self.policy.normaliser.update(tensors.obs, self._reduce)
        self._update_value_scale()
        self.version += 1
        return self._figures(sums, num_views, segment)

    @contextlib.contextmanager
    def _training(self) -> Iterator[None]:
        """A model with modes is in that of training, and torch's chance (dropout) follows from the learner's own."""
        if not self.policy.has_modes:
            yield
            return
        with torch.random.fork_rng(devices=[self._device] if self._device.type == "cuda" else []):
            rank = self._ranks.rank if self._ranks is not None else 0
            torch.manual_seed(int(self._rng.integers(1 << 62)) + rank)
            self.policy.train()
            try:
                yield
            finally:
                self.policy.eval()
        self._share_statistics()

    def _share_statistics(self) -> None:
        """The mean over ranks of running statistics: each has seen its own rows, and all must act alike."""
        if self._reduce is None:
            return
        for module in self.policy.modules():
            if isinstance(module, torch.nn.modules.batchnorm._NormBase):
                for statistics in (module.running_mean, module.running_var):
                    if statistics is not None:
                        self._reduce(statistics)
                        statistics.div_(self._ranks.size)  # type: ignore[union-attr]

    def _figures(self, sums: dict[str, float], num_views: int, segment: Segment) -> dict[str, float]:
        if not sums:
            return {}
        values = torch.tensor(list(sums.values()), dtype=torch.float64, device=self._device)
        if self._reduce is not None:
            self._reduce(values)
        numbers = dict(zip(sums, (values / max(num_views, 1)).tolist(), strict=True))
        if self._ranks is not None:
            numbers["gradient_norm"] /= self._ranks.size
        odd = next((name for name in ("loss", "gradient_norm") if not np.isfinite(numbers[name])), None)
        if odd is not None:
            told = f"the {odd.replace('_', ' ')} is {numbers[odd]} after update {self.version}"
            if not all(_is_finite(leaf) for leaf in (segment.reward, *nests.leaves(segment.obs))):
                raise TrainingError(
                    f"{told}: rewards or observations that it learnt from are no finite numbers. Whatever gave them "
                    "must be mended, no setting will help; the last checkpoint is sound."
                )
            raise TrainingError(
                f"{told}: training has diverged. A smaller learning_rate or max_grad_norm, or a reward_scale below 1, "
                "may help; the last checkpoint is sound."
            )
        self._warn_if_frozen(numbers)
        return numbers

    def _warn_if_frozen(self, metrics: Mapping[str, float]) -> None:
        """Say once that clipping leaves the policy nothing to learn by."""
        limit = self._config.max_grad_norm
        is_frozen = (
            0.0 < limit * _FAR_ABOVE < metrics["gradient_norm"] and abs(metrics.get("kl", 1.0)) < _HARDLY_CHANGED
        )
        self._num_frozen = self._num_frozen + 1 if is_frozen else 0
        if self._num_frozen == _MOST_FROZEN:
            _LOG.warning(
                "the policy hardly changes: in the last %d updates the gradient norm was far above max_grad_norm (now "
                "%.3g, clipped to %g) and the kl about 0 (%.1g). The value loss takes all of the gradient, because "
                "returns are large. Set normalise_returns=yes, or a smaller reward_scale.",
                _MOST_FROZEN, metrics["gradient_norm"], limit, metrics["kl"],
            )  # fmt: skip

    # --- minibatches

    def _minibatches(self, tensors: Segment) -> Iterator[Iterator[View]]:
        """Each has one view, or as many as gradients are accumulated over; a view is made when its turn comes."""
        if self.algorithm.needs_time:
            return self._of_rows(tensors, {})
        with torch.no_grad():
            if self.algorithm.is_off_policy:
                value, logp = self._values_and_logp(tensors)
                targets = self.algorithm.off_policy_targets(tensors, value, logp, self._reduce)
            else:
                targets = self.algorithm.targets(tensors, self._values(tensors), self._reduce)
            self._note_targets(targets, tensors.active[:-1])
            if self._shift and "value_target" in targets:  # losses compare it with what the network gives
                targets["value_target"] = targets["value_target"] - self._shift
        if self.policy.is_recurrent:
            return self._of_rows(tensors, targets)
        return self._of_steps(tensors, targets)

    def _values(self, tensors: Segment) -> Any:
        with self._autocast():
            if self.policy.is_recurrent:
                _params, value = self.policy.evaluate(tensors.obs, tensors.memory, tensors.first)
                return value.float() + self._shift
            flat = nests.map(lambda leaf: leaf.flatten(0, 1), tensors.obs)
            num_rows = tensors.first.numel()
            # in parts, so that images do not need memory for the activations of all at once
            parts = [
                self.policy.values(nests.map(lambda leaf, s=start: leaf[s : s + 4096], flat))
                for start in range(0, num_rows, 4096)
            ]
            return torch.cat(parts).float().view(tensors.first.shape) + self._shift

    def _values_and_logp(self, tensors: Segment) -> tuple[Any, Any]:
        """Values `[T + 1, R]`, and log-probabilities `[T, R]` of the actions under the present policy."""
        steps, rows = tensors.reward.shape
        with self._autocast():
            if self.policy.is_recurrent:
                params, value = self.policy.evaluate(tensors.obs, tensors.memory, tensors.first)
            else:
                flat = nests.map(lambda leaf: leaf.flatten(0, 1), tensors.obs)
                parts = [
                    self.policy.evaluate(nests.map(lambda leaf, s=start: leaf[s : s + 4096], flat))
                    for start in range(0, (steps + 1) * rows, 4096)
                ]
                params = torch.cat([params for params, _ in parts]).view(steps + 1, rows, -1)
                value = torch.cat([value for _, value in parts]).view(steps + 1, rows)
        mask = None if tensors.mask is None else tensors.mask[:-1]
        logp, _ = self.policy.head.logp_and_entropy(params[:-1].float(), tensors.action, mask)
        return value.float() + self._shift, logp

    def _of_steps(self, tensors: Segment, targets: dict[str, torch.Tensor]) -> Iterator[Iterator[View]]:
        """Minibatches of single steps, in a new order in each epoch."""
        steps, rows = tensors.reward.shape
        chosen = tensors.active[:-1].reshape(-1).nonzero().squeeze(1)
        columns: dict[str, Any] = {
            "obs": nests.map(lambda leaf: leaf[:-1].flatten(0, 1), tensors.obs),
            "action": tensors.action.flatten(0, 1),
            "logp": tensors.logp.flatten(),
            "mask": None if tensors.mask is None else tensors.mask[:-1].flatten(0, 1),
            **{f"targets/{name}": target.flatten() for name, target in targets.items()},
        }
        size = self._config.minibatch_size or steps * rows
        num_minibatches = max(1, round(steps * rows / size))
        for _epoch in range(self._config.num_epochs):
            order = chosen[torch.from_numpy(self._rng.permutation(len(chosen)))]
            shuffled = nests.map(lambda leaf, o=order: None if leaf is None else leaf.index_select(0, o), columns)
            for number in range(num_minibatches):
                begin, end = len(order) * number // num_minibatches, len(order) * (number + 1) // num_minibatches
                total = self._total(end - begin)
                if total == 0.0:  # all worlds have raised: there is nothing to learn from
                    continue
                yield self._step_views(shuffled, _parts(begin, end, self._config.accumulate), total)

    def _step_views(self, columns: dict[str, Any], parts: list[slice], total: float | None) -> Iterator[View]:
        for part in parts:
            yield self._step_view(nests.map(lambda leaf, p=part: None if leaf is None else leaf[p], columns), total)

    def _step_view(self, columns: dict[str, Any], total: float | None) -> View:
        with self._autocast():
            params, value = self.policy.evaluate(columns["obs"])
        weight = None
        if total is not None:
            weight = torch.full_like(columns["logp"], 1.0 / total)
        return View(
            head=self.policy.head,
            params=params.float(),
            value=value.float(),
            action=columns["action"],
            logp=columns["logp"],
            mask=columns["mask"],
            weight=weight,
            targets={name[8:]: column for name, column in columns.items() if name.startswith("targets/")},
            reduce=self._reduce,
        )

    def _total(self, num_own: int) -> float | None:
        """What the steps of a minibatch are divided by, where a plain mean will not do."""
        if self._reduce is None and self._config.accumulate == 1 and num_own:
            return None
        count = torch.tensor(float(num_own), device=self._device)
        if self._reduce is not None:
            self._reduce(count)
        return float(count)

    def _of_rows(self, tensors: Segment, targets: dict[str, torch.Tensor]) -> Iterator[Iterator[View]]:
        """Minibatches of whole rows, in a new order in each epoch if there are several."""
        steps, rows = tensors.reward.shape
        size = max(1, round(self._config.minibatch_size / steps)) if self._config.minibatch_size else rows
        num_minibatches = max(1, round(rows / size))
        if num_minibatches < self._config.accumulate and rows < self._config.accumulate:
            raise DataError(f"accumulate={self._config.accumulate} parts need as many rows; a segment has {rows}.")
        for _epoch in range(self._config.num_epochs):
            order = torch.from_numpy(self._rng.permutation(rows)) if num_minibatches > 1 else None
            for number in range(num_minibatches):
                begin, end = rows * number // num_minibatches, rows * (number + 1) // num_minibatches
                parts = [
                    (tensors, targets) if order is None and part == slice(0, rows) else
                    _take_rows(tensors, targets, part if order is None else order[part])
                    for part in _parts(begin, end, self._config.accumulate)
                ]  # fmt: skip
                count = torch.stack([part.active[:-1].sum() for part, _ in parts]).sum().float()
                if self._reduce is not None:
                    self._reduce(count)
                if not count:  # all worlds have raised: there is nothing to learn from
                    continue
                yield self._row_views(parts, count)

    def _row_views(self, parts: list[tuple[Segment, dict[str, torch.Tensor]]], count: torch.Tensor) -> Iterator[View]:
        for tensors, targets in parts:
            yield self._row_view(tensors, targets, count)

    def _row_view(self, tensors: Segment, targets: dict[str, torch.Tensor], count: torch.Tensor) -> View:
        steps, rows = tensors.reward.shape
        with self._autocast():
            if self.policy.is_recurrent:
                params, value = self.policy.evaluate(tensors.obs, tensors.memory, tensors.first)
            else:
                params, value = self.policy.evaluate(nests.map(lambda leaf: leaf.flatten(0, 1), tensors.obs))
                params, value = params.view(steps + 1, rows, -1), value.view(steps + 1, rows)
        return View(
            head=self.policy.head,
            params=params[:-1].float(),
            value=value.float() + self._shift if self.algorithm.needs_time else value[:-1].float(),
            action=tensors.action,
            logp=tensors.logp,
            mask=None if tensors.mask is None else tensors.mask[:-1],
            weight=tensors.active[:-1] / count.clamp(min=1.0),
            targets=dict(targets),
            segment=tensors,
            reduce=self._reduce,
        )

    def _tensors(self, segment: Segment) -> Segment:
        def tensor(leaf: Any) -> Any:
            return None if leaf is None else torch.from_numpy(_writable(leaf)).to(self._device, non_blocking=True)

        tensors = Segment(**{name: nests.map(tensor, value) for name, value in segment.to_nest().items()})
        if self._config.reward_scale != 1.0:
            tensors.reward = tensors.reward * self._config.reward_scale
        if self._value_scale is not None:
            if not self._value_scale.is_known:
                self._begin_value_scale(tensors)
            self._shift = self._value_scale.shift
            tensors.reward = tensors.reward / float(self._value_scale.std)
        return tensors

    # --- the scale of returns

    def _begin_value_scale(self, tensors: Segment) -> None:
        """From the returns of the first segment, of which nothing is predicted yet."""
        assert self._value_scale is not None
        _, returns = ops.gae(
            tensors.reward, torch.zeros_like(tensors.first, dtype=torch.float32), tensors.terminated,
            tensors.truncated, tensors.active, tensors.first, gamma=self._config.gamma, lam=1.0,
        )  # fmt: skip
        self._value_scale.update(returns, tensors.active[:-1], reduce=self._reduce)

    def _note_targets(self, targets: Mapping[str, torch.Tensor], active: torch.Tensor) -> None:
        if self._value_scale is not None and "value_target" in targets:
            self._value_targets.append((targets["value_target"].detach(), active))

    def _update_value_scale(self) -> None:
        if self._value_scale is None or not self._value_targets:
            return
        targets = torch.cat([target.flatten() for target, _ in self._value_targets])
        active = torch.cat([where.flatten() for _, where in self._value_targets])
        self._value_targets.clear()
        self._value_scale.update(targets * float(self._value_scale.std), active, self.policy.model, self._reduce)

    def _autocast(self) -> Any:
        if self._config.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=getattr(torch, self._config.precision))

    # --- what a checkpoint holds

    def save(self) -> dict[str, Nest]:
        """Everything needed to go on exactly from here, as a nest for the codec."""
        return {
            "weights": self.policy.weights(),
            "optimiser": self._optimiser.save(),
            "rng": save_rng(self._rng),
            "version": self.version,
            "num_gradient_steps": self.num_gradient_steps,
        }

    def restore(self, saved: dict[str, Nest]) -> None:
        self.policy.load_weights(saved["weights"])
        self._optimiser.restore(saved["optimiser"])
        restore_rng(self._rng, saved["rng"])
        self.version = saved["version"]
        self.num_gradient_steps = saved["num_gradient_steps"]


def _parts(begin: int, end: int, num: int) -> list[slice]:
    num = min(num, max(end - begin, 1))
    return [slice(begin + (end - begin) * i // num, begin + (end - begin) * (i + 1) // num) for i in range(num)]


def _take_rows(
    tensors: Segment, targets: dict[str, torch.Tensor], rows: slice | torch.Tensor
) -> tuple[Segment, dict[str, torch.Tensor]]:
    def take(leaf: Any) -> Any:
        return None if leaf is None else leaf[:, rows]

    taken = {name: nests.map(take, value) for name, value in tensors.to_nest().items() if name not in _NOT_BY_ROW}
    memory = nests.map(lambda leaf: None if leaf is None else leaf[rows], tensors.memory)
    segment = Segment(**taken, memory=memory, version=tensors.version)
    return segment, {name: take(target) for name, target in targets.items()}


_NOT_BY_ROW = ("memory", "version", "state")


def _is_finite(array: NDArray[Any]) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.flags.writeable else array.copy()
