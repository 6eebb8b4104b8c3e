"""Datasets of Minari as ours. `minari_cartpole` was made by Minari 0.5.4 itself: three episodes of random play."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.data.actions import Continuous, Discrete, MultiDiscrete
from ludus.errors import DataError, MissingExtra
from ludus.experiment.datasets.dataset import Dataset
from ludus.experiment.datasets.minari import dataset_from_minari

CARTPOLE = Path(__file__).parent / "minari_cartpole"


def test_without_its_library_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtra, match=r"h5py is not installed\. Install it with: pip install 'ludus\[offline\]'"):
        dataset_from_minari(CARTPOLE, tmp_path / "data")


def test_a_folder_without_one_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    with pytest.raises(DataError, match=r"is not a Minari dataset: there is no main_data\.hdf5"):
        dataset_from_minari(tmp_path, tmp_path / "data")


def test_what_minari_wrote_is_read_episode_by_episode(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    seen: list[tuple[int, int]] = []
    dataset = dataset_from_minari(CARTPOLE, tmp_path / "data", on_progress=lambda *args: seen.append(args))
    assert (dataset.num_episodes, dataset.num_steps, seen) == (3, 67, [(1, 3), (2, 3), (3, 3)])
    assert dataset.spec.action == Discrete(2)
    assert (dataset.spec.obs.shape, dataset.spec.obs.dtype) == ((4,), np.float32)
    assert dataset.source["id"] == "test/cartpole-v0"
    with h5py.File(CARTPOLE / "data" / "main_data.hdf5") as file:
        for number, episode in enumerate(dataset.episodes()):
            group = file[f"episode_{number}"]
            np.testing.assert_array_equal(episode.obs, group["observations"])
            np.testing.assert_array_equal(episode.action, group["actions"])
            np.testing.assert_array_equal(episode.reward, group["rewards"])
            assert episode.terminated == group["terminations"][-1]


def write(folder: Path, seen: Any, done: Any, observations: Any, actions: Any, *, beside: bool) -> Path:
    """In Minari's layout; before 0.5 the spaces were attributes of the file."""
    import h5py

    folder.mkdir()
    spaces = {"observation_space": json.dumps(seen), "action_space": json.dumps(done)}
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        for number in (0, 1, 10, 2):  # their numbers are their order
            group = file.create_group(f"episode_{number}")
            for path, leaf in observations.items():
                group[f"observations{path}"] = leaf
            group["actions"] = actions
            group["rewards"] = np.full(len(actions), float(number))
            group["terminations"] = np.zeros(len(actions), np.bool_)
            group["truncations"] = np.arange(len(actions)) == len(actions) - 1
        if not beside:
            file.attrs.update(spaces)
    if beside:
        (folder / "metadata.json").write_text(json.dumps(spaces))
    return folder


@pytest.mark.parametrize("beside", [True, False])
def test_nested_observations_and_actions_of_other_bases_are_translated(tmp_path: Path, beside: bool) -> None:
    pytest.importorskip("h5py")
    seen = {
        "type": "Dict",
        "subspaces": {
            "goal": {"type": "Box", "dtype": "float64", "shape": [2], "low": [-1, -1], "high": [1, 1]},
            "room": {"type": "Discrete", "dtype": "int64", "start": 1, "n": 3},
        },
    }
    done = {"type": "Discrete", "dtype": "int64", "start": 5, "n": 3}
    observations = {"/goal": np.linspace(0, 1, 6).reshape(3, 2), "/room": np.array([1, 2, 3])}
    path = write(tmp_path / "m", seen, done, observations, np.array([5, 7]), beside=beside)
    dataset = dataset_from_minari(path / "main_data.hdf5", tmp_path / "data")
    episodes = list(dataset.episodes())
    assert [one.reward[0] for one in episodes] == [0, 1, 2, 10]
    assert episodes[0].action.tolist() == [0, 2]
    assert episodes[0].obs["goal"].dtype == np.float32
    assert not episodes[0].terminated


@pytest.mark.parametrize(
    ("space", "actions", "spec"),
    [
        (
            {"type": "Box", "dtype": "float32", "shape": [1, 2], "low": [[-1, -2]], "high": [[1, 2]]},
            np.float32([[[0.5, 1.0]], [[0.0, 0.0]]]),
            Continuous((-1.0, -2.0), (1.0, 2.0)),
        ),
        (
            {"type": "MultiDiscrete", "dtype": "int64", "nvec": [2, 3]},
            np.int64([[1, 2], [0, 0]]),
            MultiDiscrete((2, 3)),
        ),
        ({"type": "MultiBinary", "n": 2}, np.int8([[1, 0], [0, 1]]), MultiDiscrete((2, 2))),
    ],
)
def test_kinds_of_actions(tmp_path: Path, space: Any, actions: Any, spec: Any) -> None:
    pytest.importorskip("h5py")
    seen = {"type": "Box", "dtype": "float32", "shape": [1], "low": [0], "high": [1]}
    path = write(tmp_path / "m", seen, space, {"": np.zeros((3, 1), np.float32)}, actions, beside=True)
    dataset = dataset_from_minari(path, tmp_path / "data")
    assert dataset.spec.action == spec
    np.testing.assert_array_equal(next(iter(dataset.episodes())).action, actions.reshape(2, 2))


def test_what_cannot_be_read_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    box = {"type": "Box", "dtype": "uint8", "shape": [4, 4], "low": [[0] * 4] * 4, "high": [[255] * 4] * 4}
    text, one = {"type": "Text"}, {"type": "Discrete", "dtype": "int64", "start": 0, "n": 2}
    encoded = write(tmp_path / "jpeg", box, one, {"": np.zeros((3, 9), np.uint8)}, np.array([0, 1]), beside=True)
    with pytest.raises(DataError, match="Images that Minari has compressed"):
        dataset_from_minari(encoded, tmp_path / "data")
    words = write(tmp_path / "text", text, one, {"": np.zeros(3)}, np.array([0, 1]), beside=True)
    with pytest.raises(DataError, match="space Text"):
        dataset_from_minari(words, tmp_path / "data")
    torn = tmp_path / "torn"
    shutil.copytree(CARTPOLE, torn)
    file = torn / "data" / "main_data.hdf5"
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(DataError, match="cannot be read"):
        dataset_from_minari(torn, tmp_path / "data")
    (torn / "data" / "metadata.json").write_text("{}")
    shutil.copy(CARTPOLE / "data" / "main_data.hdf5", file)
    with pytest.raises(DataError, match="not as Minari writes it: KeyError"):
        dataset_from_minari(torn, tmp_path / "data")
    assert not (tmp_path / "data").exists()
    with pytest.raises(DataError):
        Dataset.open(tmp_path / "data")
