"""Minari's datasets on disk as ours: `main_data.hdf5`, read by `h5py`. https://minari.farama.org

A file has a group for each episode: observations (one more than actions), actions, rewards, terminations, truncations.
The spaces are JSON, in `metadata.json` beside it or, before Minari 0.5, attributes of the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.core import EnvSpec
from ludus.data import nest as nests
from ludus.data.actions import ActionSpec, Continuous, Discrete, MultiDiscrete
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.experiment.datasets.dataset import Dataset, DatasetWriter
from ludus.experiment.datasets.episode import RecordedEpisode

__all__ = ["dataset_from_minari", "find_minari"]

_DATA, _METADATA = "main_data.hdf5", "metadata.json"


def find_minari(path: str | Path) -> Path:
    """The file of a dataset that is given by its folder, or by the file. Raises `DataError`."""
    given = Path(path)
    for each in (given, given / _DATA, given / "data" / _DATA):
        if each.is_file():
            return each
    raise errors.DataError(
        f"{path} is not a Minari dataset: there is no {_DATA} in it or in its data/. Minari keeps datasets in "
        "~/.minari/datasets; `minari download NAME` brings one there"
    )


def dataset_from_minari(
    path: str | Path, folder: Path, *, on_progress: Callable[[int, int], None] | None = None
) -> Dataset:
    """Write its episodes as a dataset; `on_progress` is called with the episodes so far, and all there are.

    Raises `DataError` for what cannot be read, and `MissingExtra`; then nothing is written.
    """
    try:
        import h5py
    except ImportError:
        raise errors.MissingExtra("h5py", extra="offline") from None
    file = find_minari(path)
    try:
        with h5py.File(file, "r") as opened:
            described = _described(file, opened)
            spec, start = _spec(described, name=file.parent.parent.name)
            names = sorted((name for name in opened if name.startswith("episode_")), key=lambda name: int(name[8:]))
            source = {"kind": "minari", "path": str(file.absolute()), "id": described.get("dataset_id", "")}
            with DatasetWriter(folder, spec, source=source) as writer:
                for number, episode in enumerate(_episodes(opened, names, spec, start), 1):
                    writer.add(episode)
                    if on_progress is not None:
                        on_progress(number, len(names))
    except OSError as error:
        raise errors.DataError(f"{file} cannot be read: {error}") from None
    except (KeyError, TypeError, IndexError, json.JSONDecodeError) as error:
        raise errors.DataError(f"{file} is not as Minari writes it: {error!r}") from None
    return Dataset.open(folder)


def _described(file: Path, opened: Any) -> dict[str, Any]:
    beside = file.parent / _METADATA
    return dict(json.loads(beside.read_text())) if beside.is_file() else dict(opened.attrs)


def _spec(described: dict[str, Any], *, name: str) -> tuple[EnvSpec, Any]:
    """What is seen and done, and what its discrete actions are counted from."""
    seen, done = (json.loads(described[key]) for key in ("observation_space", "action_space"))
    return EnvSpec(name=name, obs=_obs(seen), action=_action(done)), np.asarray(done.get("start", 0))


def _obs(space: dict[str, Any]) -> Nest:
    """As `envs/spaces.py` has it for the spaces themselves."""
    match space["type"]:
        case "Box":
            dtype = np.dtype(np.float32) if space["dtype"] == "float64" else np.dtype(space["dtype"])
            low, high = (np.asarray(space[key], np.float64).astype(dtype) for key in ("low", "high"))
            return ArraySpec(space["shape"], dtype, low, high)
        case "Discrete":
            return ArraySpec((), np.int64, space["start"], space["start"] + space["n"] - 1)
        case "MultiDiscrete":
            start = np.asarray(space.get("start", 0))
            return ArraySpec(np.shape(space["nvec"]), np.int64, start, start + np.asarray(space["nvec"]) - 1)
        case "MultiBinary":
            return ArraySpec(np.atleast_1d(space["n"]).tolist(), np.int8, 0, 1)
        case "Dict":
            return {key: _obs(child) for key, child in space["subspaces"].items()}
    raise errors.DataError(f"observations of the space {space['type']} have no array form here")


def _action(space: dict[str, Any]) -> ActionSpec:
    match space["type"]:
        case "Discrete":
            return Discrete(int(space["n"]))
        case "MultiDiscrete":
            return MultiDiscrete(tuple(int(n) for n in np.ravel(space["nvec"])))
        case "MultiBinary":
            return MultiDiscrete((2,) * int(np.prod(space["n"])))
        case "Box" if np.dtype(space["dtype"]).kind == "f":
            low, high = (np.asarray(space[key], np.float32).ravel().tolist() for key in ("low", "high"))
            return Continuous(tuple(low), tuple(high))
    raise errors.DataError(
        f"actions of the space {space['type']} are none of Discrete, MultiDiscrete and a Box of floats"
    )


def _episodes(opened: Any, names: list[str], spec: EnvSpec, start: Any) -> Iterator[RecordedEpisode]:
    for name in names:
        group = opened[name]
        reward = np.asarray(group["rewards"], np.float32)
        if not len(reward):
            continue
        actions = np.asarray(group["actions"])
        if actions.dtype.kind in "iu":
            actions = actions - start
        yield RecordedEpisode(
            obs=nests.map_with_path(lambda path, leaf, group=group: _seen(group, path, leaf), spec.obs),
            action=actions.reshape(len(reward), *spec.action.array.shape).astype(spec.action.array.dtype),
            reward=reward,
            terminated=bool(group["terminations"][-1]),
        )


def _seen(group: Any, path: str, leaf: ArraySpec) -> NDArray[Any]:
    stored = group[f"observations/{path}" if path else "observations"]
    if stored.shape[1:] != leaf.shape:
        raise errors.DataError(
            f"{group.name}: observations {path!r} are stored as {stored.dtype} {stored.shape[1:]}, and the space is "
            f"{leaf.dtype} {leaf.shape}. Images that Minari has compressed cannot be read here"
        )
    return np.asarray(stored).astype(leaf.dtype, copy=False)
