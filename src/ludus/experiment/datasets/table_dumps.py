"""What replay has kept, as a dataset: of a training run's checkpoint, or of a store in a folder.

The steps of a row are linked to each other; an episode is a walk along the links. Of one that began before the oldest
step that is kept, the rest is there; of one that goes on, what there is so far, as cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import envs, errors
from ludus.core import EnvSpec
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.experiment.checkpoints import CheckpointStore
from ludus.experiment.datasets.dataset import Dataset, DatasetWriter
from ludus.experiment.datasets.episode import RecordedEpisode
from ludus.experiment.saved_config import load_config
from ludus.services.buffer.columns import Columns
from ludus.services.buffer.trajectory_reader import ENTRIES, TrajectoryReader
from ludus.services.buffer.trajectory_spec import ACTIVE, DONE, FIRST, TERMINATED, TrajectorySpec

__all__ = ["dataset_from_store", "dataset_from_trial", "kept_episodes"]

Ints = NDArray[np.int64]
OnProgress = Callable[[int, int], None]


def dataset_from_trial(trial: Path, folder: Path, *, on_progress: OnProgress | None = None) -> Dataset:
    """What the replay of a run held at its newest checkpoint. Raises `DataError` if that has none."""
    config = load_config(trial)
    step, content = CheckpointStore(trial / "checkpoints").load()
    env = envs.spec(config.train.env, **config.env_args)
    entries = _entries_of(content.get("flow"))
    if entries is None:
        raise errors.DataError(
            f"the checkpoint of step {step} of trial {trial.name!r} has no replay: {config.train.algorithm} keeps "
            "none, or it was too large. `ludus dataset play` has its policy play instead"
        )
    spec = TrajectorySpec(
        obs=env.obs,
        action=env.action.array,
        mask_size=env.action.mask_size if "mask" in entries else 0,
        frame_stack=nests.leaves(env.obs)[0].shape[0] if "prev" in entries else 1,
    )
    kept = {name: ArraySpec(array.shape[1:], array.dtype) for name, array in entries.items()}
    columns = Columns(kept, len(entries["key"]))  # of a ring that is not full, the keys are the slots
    columns.write(0, entries)
    source = {"kind": "replay", "trial": str(trial.absolute()), "step": step, "env": config.train.env}
    return _write(spec, columns, folder, env, source, on_progress)


def dataset_from_store(store: Path, folder: Path, env: EnvSpec, *, on_progress: OnProgress | None = None) -> Dataset:
    """What a `TrajectoryStore` in a folder holds. Raises `DataError` if there is none, or if it is not of this env."""
    columns = Columns.open(store / ENTRIES, readonly=True)
    spec = TrajectorySpec.from_json(columns.extra.get("spec", {}))
    return _write(spec, columns, folder, env, {"kind": "store", "path": str(store.absolute())}, on_progress)


def _entries_of(flow: Nest) -> dict[str, NDArray[Any]] | None:
    """The columns of a replay in what a flow saved, mixed with datasets or not."""
    replay = flow.get("replay") if isinstance(flow, dict) else None
    if isinstance(replay, dict) and "online" in replay:
        replay = replay["online"]
    store = replay.get("store") if isinstance(replay, dict) else None
    entries = store.get("entries") if isinstance(store, dict) else None
    return entries if isinstance(entries, dict) and len(entries["key"]) else None


def _write(
    spec: TrajectorySpec,
    columns: Columns,
    folder: Path,
    env: EnvSpec,
    source: dict[str, Any],
    on_progress: OnProgress | None,
) -> Dataset:
    num_entries, num_done = int((columns.arrays["key"] >= 0).sum()), 0
    with DatasetWriter(folder, env, source=source) as writer:
        for episode in kept_episodes(spec, columns):
            writer.add(episode)
            num_done += episode.num_steps
            if on_progress is not None:
                on_progress(num_done, num_entries)
    return Dataset.open(folder)


def kept_episodes(spec: TrajectorySpec, columns: Columns) -> Iterator[RecordedEpisode]:
    """In the order of their first steps."""
    reader = TrajectoryReader(spec, columns, num_buffers=0)
    key, following, flags = (columns.arrays[name] for name in ("key", "next", "flags"))
    num_slots = columns.num_slots
    is_there = key >= 0
    acts = is_there & (flags & ACTIVE > 0)
    # An act follows another one of its episode if that has not ended, and is still there.
    goes_on = np.flatnonzero(acts & (flags & DONE == 0) & (following >= 0))
    after = following[goes_on] % num_slots
    is_whole = key[after] == following[goes_on]
    follows = np.zeros(num_slots, np.bool_)
    follows[after[is_whole]] = True
    begins = acts & (~follows | (flags & FIRST > 0))
    for start in np.sort(key[begins]).tolist():
        episode = _walk(reader, start, key, following, flags)
        if episode is not None:
            yield episode


def _walk(reader: TrajectoryReader, start: int, key: Ints, following: Ints, flags: Any) -> RecordedEpisode | None:
    """The acts from this one on, as far as it is known what each of them led to."""
    num_slots, at, length, ended = len(key), start, 0, 0
    first: int | None = None
    while True:
        slot = at % num_slots
        after = int(following[slot])
        if not flags[slot] & ACTIVE or after < 0 or key[after % num_slots] != after:
            break
        if first is None and bool(reader.has_frames(np.array([at]))[0]):  # of the oldest, frames may be gone
            first = at
        length += first is not None
        ended = int(flags[slot])
        at = after
        if ended & DONE:
            break
    if first is None:
        return None
    segment, _ = reader.sequences(np.array([first]), length=length, is_own=True)
    return _episode(segment, terminated=bool(ended & TERMINATED))


def _episode(segment: Segment, *, terminated: bool) -> RecordedEpisode:
    """Of its only row."""
    return RecordedEpisode(
        obs=nests.map(lambda leaf: leaf[:, 0].copy(), segment.obs),
        action=segment.action[:, 0].copy(),
        reward=segment.reward[:, 0].astype(np.float32),
        terminated=terminated,
        mask=None if segment.mask is None else segment.mask[:, 0].copy(),
    )
