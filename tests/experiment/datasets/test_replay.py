"""Transitions of datasets: linked as the episodes were, drawn by weight, the same for the same seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import data
from ludus.core import EnvSpec
from ludus.data.actions import Continuous, Discrete
from ludus.data.spec import ArraySpec
from ludus.data.transitions import Transitions
from ludus.errors import CheckpointError, ConfigError, DataError
from ludus.experiment.datasets.dataset import Dataset
from ludus.experiment.datasets.episode import RecordedEpisode
from ludus.experiment.datasets.replay import DatasetReplay, MixedReplay
from ludus.experiment.datasets.steps import DatasetSteps, check_spec
from ludus.learn.algorithms.replay_learner import Replayed

from .test_dataset import SPECS, make_episode, write

SPEC = EnvSpec(name="n", obs=ArraySpec((), np.float32), action=Discrete(100))


def counting(start: int, length: int, *, terminated: bool) -> RecordedEpisode:
    """Observations are numbers in a row, actions too, rewards powers of 2."""
    return RecordedEpisode(
        obs=np.arange(start, start + length + 1, dtype=np.float32),
        action=np.arange(start, start + length),
        reward=(2.0 ** np.arange(length)).astype(np.float32),
        terminated=terminated,
    )


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write(tmp_path / "a", SPEC, [counting(0, 4, terminated=True), counting(10, 2, terminated=False)])


def test_one_step_transitions_end_where_episodes_do(dataset: Dataset) -> None:
    batch = DatasetSteps([dataset], gamma=0.5).take(np.arange(6))
    assert batch.obs.tolist() == batch.action.tolist() == [0, 1, 2, 3, 10, 11]
    assert batch.next_obs.tolist() == [1, 2, 3, 4, 11, 12]
    assert batch.reward.tolist() == [1, 2, 4, 8, 1, 2]
    assert batch.discount.tolist() == [0.5, 0.5, 0.5, 0.0, 0.5, 0.5]
    assert batch.mask is None


def test_n_step_transitions_sum_rewards_up_to_the_end(dataset: Dataset) -> None:
    batch = DatasetSteps([dataset], gamma=0.5, n_step=3).take(np.arange(6))
    assert batch.reward.tolist() == [3.0, 6.0, 8.0, 8.0, 2.0, 2.0]
    assert batch.next_obs.tolist() == [3, 4, 4, 4, 12, 12]
    assert batch.discount.tolist() == [0.125, 0.0, 0.0, 0.0, 0.25, 0.5]


def test_masks_and_nests_are_those_of_their_steps(tmp_path: Path) -> None:
    spec = SPECS["vector"]
    episodes = [make_episode(spec, length, seed=length) for length in (3, 2)]
    steps = DatasetSteps([write(tmp_path / "m", spec, episodes)], gamma=0.9)
    batch = steps.take(np.array([2, 3]))
    np.testing.assert_array_equal(batch.mask, [episodes[0].mask[2], episodes[1].mask[0]])
    np.testing.assert_array_equal(batch.next_mask, [episodes[0].mask[3], episodes[1].mask[1]])
    np.testing.assert_array_equal(batch.next_obs, [episodes[0].obs[3], episodes[1].obs[1]])
    for ours, theirs in zip(episodes, steps.episodes(), strict=True):
        np.testing.assert_array_equal(ours.obs, theirs.obs)
        np.testing.assert_array_equal(ours.mask, theirs.mask)
        assert (ours.action.tolist(), ours.terminated) == (theirs.action.tolist(), theirs.terminated)
    nested = SPECS["dict"]
    image = make_episode(nested, 3)
    taken = DatasetSteps([write(tmp_path / "d", nested, [image])], gamma=0.9).take(np.array([1]))
    np.testing.assert_array_equal(taken.obs["image"][0], image.obs["image"][1])


def shares(batch: Any) -> list[float]:
    return (np.bincount((batch.obs // 100).astype(int), minlength=3) / batch.num_rows).tolist()


def write_others(tmp_path: Path) -> list[Dataset]:
    wide = EnvSpec(name="n", obs=SPEC.obs, action=Discrete(1000))
    return [
        write(tmp_path / f"o{number}", wide, [counting(100 * number, length, terminated=True)])
        for number, length in enumerate((10, 40, 50))
    ]


def test_rows_are_drawn_by_weight_or_every_step_alike(tmp_path: Path) -> None:
    datasets = write_others(tmp_path)
    common: dict[str, Any] = {"batch_size": 10_000, "gamma": 0.9}
    alike = DatasetReplay(datasets, **common).draw(4).batch
    assert alike.num_rows == 40_000
    assert shares(alike) == pytest.approx([0.1, 0.4, 0.5], abs=0.01)
    weighted = DatasetReplay(datasets, weights=(3.0, 1.0, 0.0), **common).draw(4).batch
    assert shares(weighted) == pytest.approx([0.75, 0.25, 0.0], abs=0.01)
    assert shares(weighted)[2] == 0.0
    within = np.bincount(weighted.obs[weighted.obs < 100].astype(int), minlength=10)
    assert within.min() > 0.9 * within.max(), "within a dataset every step is as likely"


@pytest.mark.parametrize("weights", [(1.0,), (1.0, -1.0, 1.0), (0.0, 0.0, 0.0), (np.inf, 1.0, 1.0), (np.nan, 1.0, 1.0)])
def test_weights_that_cannot_be_are_refused(tmp_path: Path, weights: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="dataset_weights"):
        DatasetReplay(write_others(tmp_path), weights=weights, batch_size=4, gamma=0.9)
    with pytest.raises(ConfigError, match="no dataset"):
        DatasetReplay([], batch_size=4, gamma=0.9)


def test_the_same_seed_draws_the_same_and_a_restored_one_goes_on(tmp_path: Path) -> None:
    def make(seed: int) -> DatasetReplay:
        return DatasetReplay(datasets, weights=(1.0, 2.0, 3.0), batch_size=8, gamma=0.9, seed=seed)

    datasets = write_others(tmp_path)
    ours, same, other = make(1), make(1), make(2)
    first = ours.draw(2).batch.obs
    assert np.array_equal(first, same.draw(2).batch.obs)
    assert not np.array_equal(first, other.draw(2).batch.obs)
    assert other.restore(data.decode(data.encode(ours.save())))
    assert np.array_equal(ours.draw(3).batch.obs, other.draw(3).batch.obs)
    assert ours.counts() == {"dataset_steps": 100, "dataset_drawn": 40}
    datasets = datasets[:2][::-1] + datasets[2:]
    with pytest.raises(CheckpointError, match="not those"):
        make(1).restore(ours.save())


# --- mixed with what a run collects


class Online:
    """Rows of -1, in the interface that a replay flow draws from."""

    def __init__(self, *, has_keys: bool) -> None:
        self.updated: list[int] = []
        self._has_keys = has_keys
        self._next = 0

    def draw(self, num_batches: int, *, progress: float) -> Replayed:
        num = 100 * num_batches
        minus = np.full(num, -1.0, np.float32)
        batch = Transitions(obs=minus, action=np.zeros(num, np.int64), reward=minus, discount=minus, next_obs=minus)
        if not self._has_keys:
            return Replayed(batch)
        return Replayed(batch, np.arange(num), np.full(num, 0.5, np.float32))

    def update_priorities(self, keys: Any, priorities: Any) -> None:
        assert len(keys) == len(priorities)
        self.updated += keys.tolist()

    def insert(self, segment: Any, stream: str) -> None:
        self._next += 1

    def has_room(self) -> bool:
        return self._next < 1

    def num_ready(self, most: int) -> int:
        return min(most, 3)

    def counts(self) -> dict[str, float]:
        return {"size": 7}

    def save(self) -> Any:
        return {"next": self._next}

    def restore(self, saved: Any) -> bool:
        self._next = saved["next"]
        return True

    def close(self) -> None:
        self._next = -1


@pytest.mark.parametrize("has_keys", [False, True])
def test_a_share_of_the_rows_is_from_datasets_and_the_others_keep_their_keys(dataset: Dataset, has_keys: bool) -> None:
    online = Online(has_keys=has_keys)
    mixed = MixedReplay(online, DatasetReplay([dataset], batch_size=4, gamma=0.5), share=0.25, seed=3)
    drawn = mixed.draw(40, progress=0.0)
    is_online = drawn.batch.obs < 0.0
    assert is_online.mean() == pytest.approx(0.75, abs=0.03)
    assert np.array_equal(drawn.batch.reward < 0.0, is_online)
    assert set(np.unique(drawn.batch.obs[~is_online])) == {0, 1, 2, 3, 10, 11}
    if has_keys:
        assert drawn.keys is not None
        assert drawn.weight is not None
        assert np.array_equal(drawn.keys[is_online], np.flatnonzero(is_online))
        assert set(drawn.weight[is_online]) == {0.5}
        assert set(drawn.weight[~is_online]) == {1.0}
        mixed.update_priorities(drawn.keys, np.ones(4000))
        assert online.updated == np.flatnonzero(is_online).tolist()
    assert mixed.counts()["size"] == 7
    assert (mixed.num_ready(9), mixed.has_room()) == (3, True)


def test_a_mixture_goes_on_where_it_was_saved(dataset: Dataset) -> None:
    def make(seed: int) -> MixedReplay:
        datasets = DatasetReplay([dataset], batch_size=4, gamma=0.5, seed=seed)
        return MixedReplay(Online(has_keys=False), datasets, share=0.5, seed=seed)

    ours, other = make(1), make(2)
    ours.insert(None, "0")
    ours.draw(1, progress=0.0)
    assert other.restore(data.decode(data.encode(ours.save())))
    assert np.array_equal(ours.draw(1, progress=0.0).batch.obs, other.draw(1, progress=0.0).batch.obs)
    assert not other.has_room()
    with pytest.raises(ConfigError, match="dataset_share"):
        MixedReplay(Online(has_keys=False), DatasetReplay([dataset], batch_size=4, gamma=0.5), share=1.5)


# --- which env it is for


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            EnvSpec(name="E", obs=ArraySpec((4,), np.float32), action=Discrete(100)),
            r"float32 \[\], and those of the env",
        ),
        (EnvSpec(name="E", obs={"a": SPEC.obs}, action=Discrete(100)), "its observations are"),
        (EnvSpec(name="E", obs=SPEC.obs, action=Discrete(2)), r"its actions are Discrete\(num_choices=100\)"),
        (EnvSpec(name="E", obs=SPEC.obs, action=Continuous((-1.0,), (1.0,))), "its actions are"),
    ],
)
def test_a_dataset_of_another_env_is_refused(dataset: Dataset, env: EnvSpec, message: str) -> None:
    with pytest.raises(DataError, match=f"does not fit E: .*{message}"):
        check_spec(dataset, env)
    check_spec(dataset, SPEC)
