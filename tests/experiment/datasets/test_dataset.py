"""A dataset is whole and as it was written, or it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.core import EnvSpec
from ludus.data import nest as nests
from ludus.data.actions import Continuous, Discrete, MultiDiscrete
from ludus.data.spec import ArraySpec
from ludus.errors import DataError
from ludus.experiment.datasets import dataset as datasets
from ludus.experiment.datasets.dataset import Dataset, DatasetWriter
from ludus.experiment.datasets.episode import EpisodeBuilder, RecordedEpisode

SPECS = {
    "vector": EnvSpec(name="v", obs=ArraySpec((3,), np.float32), action=Discrete(3), has_mask=True),
    "dict": EnvSpec(
        name="d",
        obs={"image": ArraySpec((4, 4, 1), np.uint8, 0, 255), "speed": ArraySpec((), np.float32)},
        action=Continuous((-1.0, -2.0), (1.0, 3.0)),
    ),
    "choices": EnvSpec(name="c", obs=ArraySpec((), np.int64, 0, 9), action=MultiDiscrete((2, 3))),
}


def make_episode(spec: EnvSpec, num_steps: int, *, seed: int = 0, terminated: bool = True) -> RecordedEpisode:
    rng = np.random.default_rng(seed)

    def some(leaf: ArraySpec, num: int) -> np.ndarray:
        drawn = rng.random((num, *leaf.shape))
        return (drawn * (2 if leaf.dtype.kind != "f" else 1)).astype(leaf.dtype)

    mask = None
    if spec.has_mask:
        mask = rng.random((num_steps + 1, spec.action.mask_size)) < 0.5
        mask[:, 0] = True
    return RecordedEpisode(
        obs=nests.map(lambda leaf: some(leaf, num_steps + 1), spec.obs),
        action=some(spec.action.array, num_steps),
        reward=rng.standard_normal(num_steps).astype(np.float32),
        terminated=terminated,
        mask=mask,
    )


def write(folder: Path, spec: EnvSpec, episodes: list[RecordedEpisode], **source: Any) -> Dataset:
    with DatasetWriter(folder, spec, source={"kind": "test", **source}) as writer:
        for episode in episodes:
            writer.add(episode)
    return Dataset.open(folder)


@pytest.mark.parametrize("kind", sorted(SPECS))
@pytest.mark.parametrize("file_bytes", [1, 1 << 20], ids=["a file for each", "one file"])
def test_what_is_read_is_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, file_bytes: int
) -> None:
    monkeypatch.setattr(datasets, "_FILE_BYTES", file_bytes)
    spec = SPECS[kind]
    episodes = [make_episode(spec, 2 + number, seed=number, terminated=number != 1) for number in range(4)]
    dataset = write(tmp_path / "data", spec, episodes, note="x")
    assert len(list((tmp_path / "data").glob("episodes-*"))) == (4 if file_bytes == 1 else 1)
    assert (dataset.num_episodes, dataset.num_steps) == (4, 14)
    assert dataset.source == {"kind": "test", "note": "x"}
    assert dataset.summary["return_mean"] == pytest.approx(np.mean([one.reward.sum() for one in episodes]), abs=1e-5)
    assert (dataset.summary["length_min"], dataset.summary["length_max"]) == (2, 5)
    assert dataset.spec.action == spec.action
    assert dataset.spec.has_mask == spec.has_mask
    assert [leaf.shape for leaf in nests.leaves(dataset.spec.obs)] == [leaf.shape for leaf in nests.leaves(spec.obs)]
    for ours, theirs in zip(episodes, dataset.episodes(), strict=True):
        assert ours.terminated == theirs.terminated
        nests.map(np.testing.assert_array_equal, ours.to_nest(), theirs.to_nest())


def test_an_episode_is_a_row_of_a_segment_that_ends_as_it_did() -> None:
    episode = make_episode(SPECS["vector"], 3, terminated=False)
    segment = episode.segment()
    assert segment.first[:, 0].tolist() == [True, False, False, False]
    assert segment.active[:, 0].tolist() == [True, True, True, False]
    assert segment.truncated[:, 0].tolist() == [False, False, True]
    assert not segment.terminated.any()
    assert np.shares_memory(segment.obs, episode.obs)


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "torn":
        path.write_bytes(content[:-5])
    elif how == "altered":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        path.unlink()


@pytest.mark.parametrize(
    ("how", "message"), [("torn", "is torn"), ("altered", "was altered"), ("missing", "cannot be read")]
)
def test_a_damaged_file_of_episodes_is_named(tmp_path: Path, how: str, message: str) -> None:
    dataset = write(tmp_path, SPECS["vector"], [make_episode(SPECS["vector"], 9)])
    (file,) = tmp_path.glob("episodes-*")
    damage(file, how)
    with pytest.raises(DataError, match=f"{file.name} {message}"):
        list(dataset.episodes())


def test_a_damaged_header_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, SPECS["vector"], [make_episode(SPECS["vector"], 9)])
    header = tmp_path / "dataset.json"
    content = json.loads(header.read_text())
    header.write_text(json.dumps({**content, "num_steps": 10}))
    with pytest.raises(DataError, match="was altered"):
        Dataset.open(tmp_path)
    header.write_text(json.dumps({**content, "format": "ludus-dataset-9"}))
    with pytest.raises(DataError, match="reads 'ludus-dataset-1'"):
        Dataset.open(tmp_path)
    header.write_text("[]")
    with pytest.raises(DataError, match="not the header"):
        Dataset.open(tmp_path)
    header.write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        Dataset.open(tmp_path)
    header.unlink()
    with pytest.raises(DataError, match="is not a dataset"):
        Dataset.open(tmp_path)


def test_a_writer_that_fails_leaves_nothing_and_one_that_was_killed_does_not_disturb_the_next(tmp_path: Path) -> None:
    spec, folder = SPECS["vector"], tmp_path / "data"
    with pytest.raises(RuntimeError), DatasetWriter(folder, spec, source={}) as writer:
        writer.add(make_episode(spec, 3))
        raise RuntimeError
    assert not folder.exists()
    with pytest.raises(DataError, match="no episode"), DatasetWriter(folder, spec, source={}):
        pass
    folder.mkdir()
    (folder / "episodes-000007.ludus").write_bytes(b"left by a killed one")
    write(folder, spec, [make_episode(spec, 3)])
    assert {path.name for path in folder.iterdir()} == {"dataset.json", "episodes-000000.ludus"}
    with pytest.raises(DataError, match="already"):
        write(folder, spec, [make_episode(spec, 3)])
    assert Dataset.open(folder).num_episodes == 1


def broken(name: str) -> RecordedEpisode:
    good = make_episode(SPECS["vector"], 3).to_nest()
    match name:
        case "obs":
            return RecordedEpisode(**{**good, "obs": good["obs"][:-1]})
        case "obs dtype":
            return RecordedEpisode(**{**good, "obs": good["obs"].astype(np.float64)})
        case "structure":
            return RecordedEpisode(**{**good, "obs": {"a": good["obs"]}})
        case "not finite":
            return RecordedEpisode(**{**good, "reward": np.float32([0, np.nan, 0])})
        case "choice":
            return RecordedEpisode(**{**good, "action": np.int64([0, 3, 0])})
        case "mask":
            return RecordedEpisode(**{**good, "mask": good["mask"][:, :2]})
    return RecordedEpisode(**{**good, "reward": np.float32([]), "action": np.int64([])})


@pytest.mark.parametrize("name", ["obs", "obs dtype", "structure", "not finite", "choice", "mask", "empty"])
def test_an_episode_that_does_not_fit_the_spec_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="episode 0 does not fit"):
        write(tmp_path, SPECS["vector"], [broken(name)])


def test_an_episode_is_built_step_by_step_with_rewards_for_the_last_action() -> None:
    spec = EnvSpec(name="s", obs=ArraySpec((), np.float32), action=Discrete(2))
    builder = EpisodeBuilder(spec)
    assert builder.end(terminated=True) is None
    builder.earn(9.0)  # before anything was done
    for step in range(3):
        builder.see(np.float32(step))
        builder.act(step % 2)
        builder.earn(1.0)
        builder.earn(0.5)
    cut_off = builder.end(terminated=False)
    assert cut_off is not None
    assert cut_off.obs.tolist() == [0.0, 1.0, 2.0, 2.0], "the last one that was seen stands for the final one"
    assert cut_off.reward.tolist() == [1.5, 1.5, 1.5]
    builder.see(np.float32(3))
    ended = builder.end(terminated=True)
    assert ended is not None
    assert ended.obs.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert ended.action.tolist() == [0, 1, 0]
