"""Drawing from datasets: by weight from several, alone or mixed with what a run collects itself.

replay = DatasetReplay([Dataset.open("expert"), Dataset.open("others")], weights=(3, 1), batch_size=256, seed=1)
replay.draw(8)                                            # 8 batches; three rows of four are the expert's
MixedReplay(online, replay, share=0.25)                   # what a replay flow draws from, and a quarter from datasets
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.data.segment import Segment
from ludus.data.transitions import Transitions
from ludus.experiment.datasets.dataset import Dataset
from ludus.experiment.datasets.steps import DatasetSteps
from ludus.experiment.flows.replay import Replay
from ludus.learn.algorithms.replay_learner import Replayed

__all__ = ["DatasetReplay", "MixedReplay"]

_SEED = 0xDA7A


class DatasetReplay:
    """Batches of transitions, drawn with replacement. The same seed draws the same.

    `weights`: how much of a batch comes from each dataset; without them every step is as likely. The datasets are read
    by `load`, or when something is first drawn.
    """

    def __init__(
        self,
        datasets: Sequence[Dataset],
        *,
        batch_size: int,
        gamma: float,
        weights: Sequence[float] = (),
        n_step: int = 1,
        seed: int | Sequence[int] = 0,
    ) -> None:
        if not datasets:
            raise errors.ConfigError("there is no dataset to learn from: give one, dataset=DIR.")
        if weights and (len(weights) != len(datasets) or min(weights) < 0.0 or not 0.0 < sum(weights) < np.inf):
            raise errors.ConfigError(
                f"dataset_weights={','.join(map(str, weights))} for {len(datasets)} datasets: there must be one for "
                "each, none below 0 or infinite, and one above 0."
            )
        self.datasets = list(datasets)
        self._weights = np.asarray(weights, np.float64) if weights else None
        self._batch_size = batch_size
        self._settings = {"gamma": gamma, "n_step": n_step}
        self._rng = np.random.default_rng(_entropy(seed, 0))
        self._loaded: DatasetSteps | None = None
        self._num_drawn = 0

    def load(self) -> DatasetSteps:
        """Read all of it, unless that is done. Raises `DataError` if a file is damaged."""
        if self._loaded is None:
            self._loaded = DatasetSteps(self.datasets, **self._settings)  # type: ignore[arg-type]
        return self._loaded

    def draw(self, num_batches: int, *, progress: float = 0.0) -> Replayed:
        return Replayed(self.sample(num_batches * self._batch_size))

    def sample(self, num_rows: int) -> Transitions:
        """So many rows, each from a dataset by its weight."""
        steps = self.load()
        sizes = steps.num_steps
        self._num_drawn += num_rows
        if self._weights is None:
            return steps.take(self._rng.integers(int(sizes.sum()), size=num_rows))
        part = self._rng.choice(len(sizes), num_rows, p=self._weights / self._weights.sum())
        return steps.take((sizes.cumsum() - sizes)[part] + self._rng.integers(sizes[part]))

    def counts(self) -> dict[str, float]:
        return {"dataset_steps": sum(dataset.num_steps for dataset in self.datasets), "dataset_drawn": self._num_drawn}

    def save(self) -> Nest:
        digests = [dataset.digest for dataset in self.datasets]
        return {"rng": save_rng(self._rng), "digests": digests, "num_drawn": self._num_drawn}

    def restore(self, saved: Nest) -> bool:
        """Go on exactly where `save` was called. Raises `CheckpointError` if the datasets are others."""
        if saved["digests"] != [dataset.digest for dataset in self.datasets]:
            folders = ", ".join(str(dataset.folder) for dataset in self.datasets)
            raise errors.CheckpointError(
                f"the datasets are not those that this run has learnt from ({folders} have other contents now). Put "
                "them back, or start another run."
            )
        restore_rng(self._rng, saved["rng"])
        self._num_drawn = int(saved["num_drawn"])
        return True


class MixedReplay:
    """What a run collects, and datasets beside it: each row of a batch is from the datasets with probability `share`.

    A replay flow takes it in the place of `online`, whose rate limiter still decides. Rows of datasets have no
    priority, and the whole importance.
    """

    def __init__(self, online: Replay, datasets: DatasetReplay, *, share: float, seed: int | Sequence[int] = 0) -> None:
        if not 0.0 <= share <= 1.0:
            raise errors.ConfigError(f"dataset_share={share}: it is a part of each batch, from 0 to 1.")
        self._online = online
        self._datasets = datasets
        self._share = share
        self._rng = np.random.default_rng(_entropy(seed, 1))

    def insert(self, segment: Segment, stream: str) -> None:
        self._online.insert(segment, stream)

    def has_room(self) -> bool:
        return self._online.has_room()

    def num_ready(self, most: int) -> int:
        return self._online.num_ready(most)

    def draw(self, num_batches: int, *, progress: float) -> Replayed:
        drawn = self._online.draw(num_batches, progress=progress)
        if not isinstance(drawn.batch, Transitions):
            raise errors.ConfigError("datasets are mixed with transitions; this algorithm learns from sequences.")
        rows = np.flatnonzero(self._rng.random(drawn.batch.num_rows) < self._share)
        if not len(rows):
            return drawn
        batch = _with_rows(drawn.batch, rows, self._datasets.sample(len(rows)))
        keys = None if drawn.keys is None else _replaced(drawn.keys, rows, -1)
        return Replayed(batch, keys, None if drawn.weight is None else _replaced(drawn.weight, rows, 1.0))

    def update_priorities(self, keys: Any, priorities: Any) -> None:
        is_own = keys >= 0
        self._online.update_priorities(keys[is_own], priorities[is_own])

    def counts(self) -> dict[str, float]:
        return {**self._online.counts(), **self._datasets.counts()}

    def save(self) -> Nest:
        return {"online": self._online.save(), "datasets": self._datasets.save(), "rng": save_rng(self._rng)}

    def restore(self, saved: Nest) -> bool:
        restore_rng(self._rng, saved["rng"])
        is_exact = self._datasets.restore(saved["datasets"])
        return self._online.restore(saved["online"]) and is_exact

    def close(self) -> None:
        self._online.close()


def _entropy(seed: int | Sequence[int], number: int) -> list[int]:
    return [*([seed] if isinstance(seed, int) else seed), _SEED + number]


def _with_rows(batch: Transitions, rows: NDArray[np.int64], other: Transitions) -> Transitions:
    """A copy of the batch with these rows from the other, whose rows they are in order."""
    fields, theirs = batch.to_nest(), other.to_nest()
    for name in ("mask", "next_mask"):
        if fields[name] is None or theirs[name] is None:  # where one does not say, all choices are allowed
            known = fields[name] if fields[name] is not None else theirs[name]
            if known is not None:
                size = known.shape[1]
                fields[name] = np.ones((batch.num_rows, size), np.bool_) if fields[name] is None else fields[name]
                theirs[name] = np.ones((other.num_rows, size), np.bool_) if theirs[name] is None else theirs[name]
    return Transitions(
        **nests.map(lambda leaf, new: None if leaf is None else _replaced(leaf, rows, new), fields, theirs)
    )


def _replaced(array: NDArray[Any], rows: NDArray[np.int64], new: Any) -> NDArray[Any]:
    changed = array.copy()
    changed[rows] = new
    return changed
