"""All steps of some datasets in memory, ready to be drawn as transitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.core import EnvSpec
from ludus.data import nest as nests
from ludus.data.actions import Continuous
from ludus.data.transitions import Transitions
from ludus.experiment.datasets.dataset import Dataset
from ludus.experiment.datasets.episode import RecordedEpisode

__all__ = ["DatasetSteps", "check_spec"]


def check_spec(dataset: Dataset, env: EnvSpec) -> None:
    """Raise `DataError` unless a policy for this env can learn from the dataset."""
    ours, theirs = env.obs, dataset.spec.obs
    shapes = [
        {path: (leaf.shape, leaf.dtype) for path, leaf in zip(nests.paths(spec), nests.leaves(spec), strict=True)}
        for spec in (ours, theirs)
    ]
    if shapes[0] != shapes[1]:
        raise errors.DataError(
            f"the dataset {dataset.folder} does not fit {env.name}: its observations are {_spell(shapes[1])}, and "
            f"those of the env {_spell(shapes[0])}. Train in the env that it was recorded in"
        )
    action, given = env.action, dataset.spec.action
    is_same = type(action) is type(given) and (
        action.array.shape == given.array.shape if isinstance(action, Continuous) else action == given
    )
    if not is_same:
        raise errors.DataError(
            f"the dataset {dataset.folder} does not fit {env.name}: its actions are {given}, and those of the env "
            f"{action}. Train in the env that it was recorded in"
        )


class DatasetSteps:
    """Reads all episodes, one after another. `n_step`: rewards in a transition.

    Steps are numbered over all datasets in their order; `num_steps` has the number of each.
    """

    def __init__(self, datasets: Sequence[Dataset], *, gamma: float, n_step: int = 1) -> None:
        episodes = [list(dataset.episodes()) for dataset in datasets]
        flat = [episode for each in episodes for episode in each]
        self.num_steps: NDArray[np.int64] = np.array([sum(one.num_steps for one in each) for each in episodes])
        self._lengths: NDArray[np.int64] = np.array([one.num_steps for one in flat])
        self._is_terminated = np.array([one.terminated for one in flat])
        self._obs = nests.concat([one.obs for one in flat])
        self._action = np.concatenate([one.action for one in flat])
        self._reward = np.concatenate([one.reward for one in flat])
        self._mask: NDArray[np.bool_] | None = None
        if any(one.mask is not None for one in flat):
            size = next(one.mask.shape[1] for one in flat if one.mask is not None)
            masks = [np.ones((one.num_steps + 1, size), np.bool_) if one.mask is None else one.mask for one in flat]
            self._mask = np.concatenate(masks)
        self._link(gamma, n_step)

    def _link(self, gamma: float, n_step: int) -> None:
        """For each step: where it was seen, what the next n brought, and where they led."""
        lengths = self._lengths
        total = int(lengths.sum())
        number = np.arange(len(lengths)).repeat(lengths)  # of the episode
        left = lengths.cumsum()[number] - np.arange(total)  # steps to its end, this one included
        self._seen_at = np.arange(total) + number  # each episode before has one observation more
        ahead = np.minimum(n_step, left)
        self._next_at = self._seen_at + ahead
        returns = np.zeros(total, np.float64)
        for step in range(n_step):
            later = np.minimum(np.arange(total) + step, total - 1)
            returns += np.where(step < ahead, gamma**step * self._reward[later].astype(np.float64), 0.0)
        self._return = returns.astype(np.float32)
        is_over = (ahead == left) & self._is_terminated[number]
        self._discount = np.where(is_over, 0.0, gamma**ahead).astype(np.float32)

    def take(self, steps: NDArray[np.int64]) -> Transitions:
        """These steps with what followed: copies."""
        seen, later = self._seen_at[steps], self._next_at[steps]
        return Transitions(
            obs=nests.map(lambda leaf: leaf[seen], self._obs),
            action=self._action[steps],
            reward=self._return[steps],
            discount=self._discount[steps],
            next_obs=nests.map(lambda leaf: leaf[later], self._obs),
            mask=None if self._mask is None else self._mask[seen],
            next_mask=None if self._mask is None else self._mask[later],
        )

    def episodes(self) -> Iterator[RecordedEpisode]:
        """As they were read; arrays are shared."""
        at = start = 0
        for number, length in enumerate(self._lengths.tolist()):
            seen = slice(at, at + length + 1)
            yield RecordedEpisode(
                obs=nests.map(lambda leaf, seen=seen: leaf[seen], self._obs),
                action=self._action[start : start + length],
                reward=self._reward[start : start + length],
                terminated=bool(self._is_terminated[number]),
                mask=None if self._mask is None else self._mask[seen],
            )
            at, start = at + length + 1, start + length


def _spell(shapes: dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]]) -> str:
    return ", ".join(f"{path + ': ' if path else ''}{dtype} {list(shape)}" for path, (shape, dtype) in shapes.items())
