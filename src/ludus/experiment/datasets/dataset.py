"""A dataset: a folder of episodes, written once, verified whenever it is read.

    with DatasetWriter(folder, spec, source={"kind": "recording", …}) as writer:
        writer.add(episode)
    dataset = Dataset.open(folder)
    dataset.spec, dataset.num_steps, dataset.summary
    for episode in dataset.episodes(): ...                   # one file in memory at a time

    dataset.json                 spec, source, counts, returns, and of each file its length and SHA-256
    episodes-000000.ludus, …     some episodes each: the frames of `ludus.data.encode` with their lengths before them

`dataset.json` is written last, so a folder that has one is whole; it has a SHA-256 of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import time
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from ludus import data, errors, files
from ludus.core import EnvSpec
from ludus.envs import games
from ludus.experiment.datasets.episode import RecordedEpisode

__all__ = ["Dataset", "DatasetWriter"]

_HEADER = "dataset.json"
_FORMAT = "ludus-dataset-1"
_FILE_BYTES = 32 << 20  # of arrays, in one file
_COUNT, _LENGTH = struct.Struct("<I"), struct.Struct("<Q")
_LIMITS = data.Limits(max_depth=64, max_leaves=10_000_000, max_bytes=1 << 36)


class DatasetWriter:
    """Writes a dataset within a `with`. One that is left by an error leaves nothing; so does one without episodes.

    Raises `DataError` if the folder has a dataset already, or, by `add`, if an episode does not fit the spec.
    """

    def __init__(self, folder: Path, spec: EnvSpec, *, source: Mapping[str, Any]) -> None:
        self._folder = Path(folder)
        self._spec = spec
        self._plain = games.plain_spec(spec)
        self._source = dict(source)
        self._episodes: list[RecordedEpisode] = []
        self._num_bytes = 0
        self._files: list[dict[str, Any]] = []
        self._returns: list[float] = []
        self._lengths: list[int] = []

    @property
    def num_episodes(self) -> int:
        return len(self._returns)

    @property
    def num_steps(self) -> int:
        return sum(self._lengths)

    def __enter__(self) -> Self:
        if (self._folder / _HEADER).exists():
            raise errors.DataError(f"{self._folder} has a dataset already; it was not touched. Choose another folder")
        files.make_folder(self._folder)
        self._remove_files()  # what a killed writer left
        return self

    def add(self, episode: RecordedEpisode) -> None:
        try:
            episode.check(self._spec)
        except errors.DataError as error:
            raise errors.DataError(f"episode {self.num_episodes} does not fit the dataset: {error}") from None
        self._episodes.append(episode)
        self._returns.append(episode.total)
        self._lengths.append(episode.num_steps)
        self._num_bytes += sum(leaf.nbytes for leaf in data.nest.leaves(episode.obs)) + episode.action.nbytes
        if self._num_bytes >= _FILE_BYTES:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if kind is not None or not self._returns:
            self._remove_files()
            with contextlib.suppress(OSError):  # it holds something else, and stays
                self._folder.rmdir()
            if kind is None:
                raise errors.DataError(f"no episode in which anything was done: {self._folder} was not written")
            return
        self._flush()
        returns = np.asarray(self._returns)
        content = {
            "format": _FORMAT,
            "made": time.time(),
            "source": self._source,
            "spec": self._plain,
            "num_episodes": self.num_episodes,
            "num_steps": self.num_steps,
            "return_mean": float(returns.mean()),
            "return_std": float(returns.std()),
            "return_min": float(returns.min()),
            "return_max": float(returns.max()),
            "length_min": min(self._lengths),
            "length_max": max(self._lengths),
            "files": self._files,
        }
        files.replace_json(self._folder / _HEADER, {**content, "sha256": _digest(content)})

    def _flush(self) -> None:
        if not self._episodes:
            return
        frames = data.encode([episode.to_nest() for episode in self._episodes], limits=_LIMITS)
        parts = [_COUNT.pack(len(frames)), *(_LENGTH.pack(data.nbytes([frame])) for frame in frames), *frames]
        sha = hashlib.sha256()
        for part in parts:
            sha.update(part)
        path = self._folder / f"episodes-{len(self._files):06d}.ludus"
        files.replace(path, parts)
        record = {"file": path.name, "sha256": sha.hexdigest(), "bytes": data.nbytes(parts)}
        self._files.append({**record, "episodes": len(self._episodes)})
        self._episodes, self._num_bytes = [], 0

    def _remove_files(self) -> None:
        files.remove_parts(self._folder, "episodes-*.ludus")
        for path in self._folder.glob("episodes-*.ludus"):
            path.unlink(missing_ok=True)


class Dataset:
    """What `dataset.json` says; episodes are read when they are asked for."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        self.folder = folder
        self.spec: EnvSpec = games.parse_spec(header["spec"], name=str(folder))
        self.source: dict[str, Any] = dict(header["source"])
        self.num_episodes = int(header["num_episodes"])
        self.num_steps = int(header["num_steps"])
        self.digest = str(header["sha256"])
        self.summary = {key: value for key, value in header.items() if key not in ("files", "format")}
        self._files = [dict(file) for file in header["files"]]

    @classmethod
    def open(cls, folder: Path | str) -> Dataset:
        """Raises `DataError` if there is none, or if its header is damaged."""
        folder = Path(folder)
        path = folder / _HEADER
        try:
            header = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise errors.DataError(
                f"{folder} is not a dataset: it has no {_HEADER}. `ludus dataset --help` says how to make one"
            ) from None
        except (OSError, ValueError) as error:
            raise errors.DataError(f"{path} cannot be read: {error}. Make the dataset again") from None
        try:
            if header["format"] != _FORMAT:
                raise errors.DataError(f"{path} has the format {header['format']!r}; this version reads {_FORMAT!r}")
            if header["sha256"] != _digest({key: value for key, value in header.items() if key != "sha256"}):
                raise errors.DataError(f"{path} was altered: its SHA-256 is another. Make the dataset again")
            return cls(folder, header)
        except (KeyError, TypeError, AttributeError, errors.ConfigError) as error:
            raise errors.DataError(f"{path} is not the header of a dataset ({error!r})") from None

    def episodes(self) -> Iterator[RecordedEpisode]:
        """In the order in which they were added. Raises `DataError` at a file that is missing, torn or altered."""
        for file in self._files:
            path = self.folder / file["file"]
            for number, nest in enumerate(self._read(path, file)):
                try:
                    episode = RecordedEpisode(**nest)
                    episode.check(self.spec)
                except (TypeError, AttributeError, errors.DataError) as error:
                    raise errors.DataError(f"{path}, episode {number}, is not one of this dataset: {error}") from None
                yield episode

    def _read(self, path: Path, file: Mapping[str, Any]) -> list[Any]:
        again = "Nothing was learnt from it; make the dataset again"
        try:
            buffer = np.fromfile(path, np.uint8).data  # writable memory, which the arrays share
        except OSError as error:
            raise errors.DataError(f"{path} cannot be read: {error.strerror}. {again}") from None
        if len(buffer) != file["bytes"]:
            raise errors.DataError(f"{path} is torn: it has {len(buffer)} bytes of {file['bytes']}. {again}")
        if hashlib.sha256(buffer).hexdigest() != file["sha256"]:
            raise errors.DataError(f"{path} was altered: its SHA-256 is another. {again}")
        (count,) = _COUNT.unpack_from(buffer)
        start = _COUNT.size + count * _LENGTH.size
        frames = []
        for (length,) in _LENGTH.iter_unpack(buffer[_COUNT.size : start]):
            frames.append(buffer[start : start + length])
            start += length
        episodes: list[Any] = data.decode(frames, limits=_LIMITS)
        return episodes


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
