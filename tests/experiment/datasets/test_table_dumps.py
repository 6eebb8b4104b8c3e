"""What a replay store has kept becomes episodes again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus.core import EnvSpec
from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.errors import DataError
from ludus.experiment.datasets.episode import RecordedEpisode
from ludus.experiment.datasets.table_dumps import dataset_from_store, dataset_from_trial
from ludus.services.buffer.trajectories import TrajectoryStore
from ludus.services.buffer.trajectory_spec import TrajectorySpec

from .test_dataset import SPECS, make_episode


def store_of(folder: Path, spec: EnvSpec, *, num_entries: int = 64, **settings: Any) -> TrajectoryStore:
    mask_size = spec.action.mask_size if spec.has_mask else 0
    trajectory = TrajectorySpec(obs=spec.obs, action=spec.action.array, mask_size=mask_size, **settings)
    store = TrajectoryStore(trajectory, num_entries=num_entries, folder=folder)
    store.add_table("replay")
    return store


@pytest.mark.parametrize("kind", sorted(SPECS))
def test_episodes_of_a_store_are_those_that_were_inserted(tmp_path: Path, kind: str) -> None:
    spec = SPECS[kind]
    store = store_of(tmp_path / "store", spec)
    episodes = [make_episode(spec, 2 + number, seed=number, terminated=number % 2 == 0) for number in range(4)]
    for number, episode in enumerate(episodes):
        store.insert(episode.segment(), stream=f"s{number % 2}")
    dataset = dataset_from_store(tmp_path / "store", tmp_path / "data", spec)
    assert dataset.num_episodes == 4
    for ours, theirs in zip(episodes, dataset.episodes(), strict=True):
        assert ours.terminated == theirs.terminated
        np.testing.assert_array_equal(ours.action, theirs.action)
        np.testing.assert_array_equal(ours.reward, theirs.reward)
        np.testing.assert_array_equal(_flat(ours.obs), _flat(theirs.obs))
        if ours.mask is not None:
            np.testing.assert_array_equal(ours.mask, theirs.mask)


def _flat(obs: Any) -> np.ndarray:
    leaves = [obs] if isinstance(obs, np.ndarray) else list(obs.values())
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in leaves])


NUMBERS = EnvSpec(name="n", obs=ArraySpec((), np.float32), action=Discrete(2))


def numbers(start: int, length: int) -> RecordedEpisode:
    seen = np.arange(start, start + length + 1, dtype=np.float32)
    return RecordedEpisode(obs=seen, action=np.zeros(length, np.int64), reward=seen[:-1], terminated=True)


def test_what_was_overwritten_is_not_there_and_what_is_not_over_is_cut_off(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", NUMBERS, num_entries=12)
    for start in (0, 100, 200):
        store.insert(numbers(start, 4).segment(), stream="0")
    unfinished = numbers(300, 3).segment()
    unfinished.terminated[:], unfinished.active[-1] = False, True
    store.insert(unfinished, stream="0")
    found = list(dataset_from_store(tmp_path / "store", tmp_path / "data", NUMBERS).episodes())
    assert [(one.obs[-1], one.terminated) for one in found][-2:] == [(204, True), (302, False)]
    for one in found:
        assert np.array_equal(np.diff(one.obs), np.ones(one.num_steps))
        assert np.array_equal(one.reward, one.obs[:-1])
    assert sum(one.num_steps for one in found) >= 8


def test_frame_stacks_are_whole_again(tmp_path: Path) -> None:
    spec = EnvSpec(name="f", obs=ArraySpec((3, 2), np.uint8, 0, 255), action=Discrete(2))
    store = store_of(tmp_path / "store", spec, frame_stack=3)
    frames = np.arange(8, dtype=np.uint8)[:, None].repeat(2, 1)
    stacks = np.stack([frames[np.maximum(0, np.arange(at - 2, at + 1))] for at in range(8)])
    episode = RecordedEpisode(obs=stacks, action=np.arange(7) % 2, reward=np.ones(7, np.float32), terminated=True)
    store.insert(episode.segment(), stream="0")
    (found,) = dataset_from_store(tmp_path / "store", tmp_path / "data", spec).episodes()
    np.testing.assert_array_equal(found.obs, stacks)


def test_a_store_of_another_env_or_none_at_all_is_refused(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", NUMBERS)
    store.insert(numbers(0, 4).segment(), stream="0")
    with pytest.raises(DataError, match="does not fit the dataset: obs must be"):
        dataset_from_store(tmp_path / "store", tmp_path / "data", SPECS["vector"])
    with pytest.raises(DataError, match="no columns"):
        dataset_from_store(tmp_path / "nothing", tmp_path / "data", NUMBERS)


def test_the_replay_of_a_run_is_a_dataset(tmp_path: Path) -> None:
    settings = {"project": str(tmp_path), "eval_episodes": 0, "threads": 1, "hidden": "8"}
    run = ludus.train("dqn", "CartPole-v1", steps=600, min_size=100, num_envs=4, trial="dqn", **settings)
    dataset = dataset_from_trial(run.trial_dir, tmp_path / "data")
    assert 500 <= dataset.num_steps <= 604
    assert dataset.source["env"] == "CartPole-v1"
    returns = [episode.total for episode in dataset.episodes()]
    assert returns == [episode.num_steps for episode in dataset.episodes()], "CartPole: 1 for each step"
    ppo = ludus.train("ppo", "CartPole-v1", steps=200, num_envs=4, num_steps=16, trial="ppo", **settings)
    with pytest.raises(DataError, match="has no replay: ppo keeps none"):
        dataset_from_trial(ppo.trial_dir, tmp_path / "other")


def test_segments_of_several_rows_give_the_episodes_of_each(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", NUMBERS)
    rows = [numbers(100 * row, 3).segment() for row in range(3)]
    store.insert(Segment.concat(rows), stream="0")
    found = list(dataset_from_store(tmp_path / "store", tmp_path / "data", NUMBERS).episodes())
    assert sorted(one.obs[0] for one in found) == [0, 100, 200]
