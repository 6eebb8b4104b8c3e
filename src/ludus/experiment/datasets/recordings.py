"""Episodes of recorded sessions: what games sent to the ready-made actor, or to one that speaks as it does.

A body is read as `experiment/policy_session.py` says; the answer is `{"action": …}`. A session is one episode, from its
start to its end. One that ended without the game's asking (its lease, a restart) was cut off. Steps that were refused
are no steps: the game has not acted on them. A tick without a session belongs to no episode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ludus import envs, errors
from ludus.core import EnvSpec
from ludus.experiment.datasets.dataset import Dataset, DatasetWriter
from ludus.experiment.datasets.episode import EpisodeBuilder, RecordedEpisode
from ludus.experiment.saved_config import load_config
from ludus.experiment.step_bodies import decode_body, expect_finite, mask_of, observation, reward_of
from ludus.gateway.record import Recorded, read_recording

__all__ = ["RecordingCounts", "dataset_from_recordings", "find_recordings", "recorded_episodes", "recorded_spec"]

_SUFFIX = ".sessions"


@dataclass(kw_only=True)
class RecordingCounts:
    """What was read."""

    num_records: int = 0
    num_sessions: int = 0
    num_refused: int = 0  # steps that were not answered with 200
    num_stateless: int = 0  # ticks without a session
    num_cut_off: int = 0  # episodes without an end of their own


def find_recordings(paths: Sequence[str | Path]) -> list[Path]:
    """Files, and all recordings of folders. Raises `DataError` if there is none."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(path.glob(f"*{_SUFFIX}")) or sorted((path / "recordings").glob(f"*{_SUFFIX}"))
            if not inside:
                raise errors.DataError(f"{path} has no recordings (*{_SUFFIX}); `ludus serve --record` makes them")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise errors.DataError(f"there is no recording {path}")
    return found


def recorded_spec(trial: Path) -> EnvSpec:
    """What games see and do that a trial serves: of its env, or of the policy that a script made as its model.

    Raises `ConfigError` if it does not say.
    """
    if (trial / "config.json").is_file():
        config = load_config(trial)
        return envs.spec(config.train.env, **config.env_args)
    from ludus.experiment.player import open_policy  # brings torch

    policy = open_policy(trial, "policy")
    return EnvSpec(name=trial.name, obs=policy.spec.obs, action=policy.spec.action, has_mask=policy.has_mask)


def dataset_from_recordings(
    recordings: Sequence[Path],
    folder: Path,
    spec: EnvSpec,
    *,
    env: str | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> tuple[Dataset, RecordingCounts]:
    """Write the episodes of these recordings as a dataset; `on_progress` is called with the records read so far.

    `env`: the name of the env that was played, if it is one.

    Raises `DataError` for a file that is no recording, is damaged, or does not fit the spec; then nothing is written.
    """
    counts = RecordingCounts()
    source: dict[str, Any] = {"kind": "recording", "files": [str(path.absolute()) for path in recordings]}
    source |= {} if env is None else {"env": env}
    with DatasetWriter(folder, spec, source=source) as writer:
        for path in recordings:
            for episode in recorded_episodes(path, spec, counts):
                writer.add(episode)
                if on_progress is not None:
                    on_progress(counts.num_records)
        if not writer.num_episodes:
            raise errors.DataError(_nothing(counts))
    return Dataset.open(folder), counts


def recorded_episodes(path: Path, spec: EnvSpec, counts: RecordingCounts | None = None) -> Iterator[RecordedEpisode]:
    """In the order in which they ended; those that had no end by the end of the file come last, as cut off."""
    counts = RecordingCounts() if counts is None else counts
    live: dict[str, EpisodeBuilder] = {}

    def ended(session: str) -> Iterator[RecordedEpisode]:
        """Without the game's word: cut off."""
        builder = live.pop(session, None)
        if builder is not None and (episode := builder.end(terminated=False)) is not None:
            counts.num_cut_off += 1
            yield episode

    for number, step in enumerate(_records(path)):
        counts.num_records += 1
        if step.kind is None:
            counts.num_stateless += 1
            continue
        try:
            if step.kind == "start":
                yield from ended(step.session)
                if step.status == 200:
                    counts.num_sessions += 1
                    live[step.session] = EpisodeBuilder(spec)
                    if step.data:
                        _tick(live[step.session], step, spec)
            elif step.kind == "end":
                if step.session in live and step.data and step.status == 200:
                    episode = _end(live.pop(step.session), step.data, spec)
                    if episode is not None:
                        counts.num_cut_off += not episode.terminated
                        yield episode
                else:
                    yield from ended(step.session)
            elif step.status == 200 and step.session in live:
                _tick(live[step.session], step, spec)
        except errors.InvalidObservation as error:
            raise errors.DataError(
                f"{path}, record {number} ({step.kind} of session {step.session}): {error}. Does the spec fit this "
                "game, and did the ready-made actor answer it?"
            ) from None
        counts.num_refused += step.status != 200
    for session in list(live):
        yield from ended(session)


def _nothing(counts: RecordingCounts) -> str:
    return (
        f"of {counts.num_records} recorded steps none is a step of an episode: {counts.num_sessions} sessions began, "
        f"{counts.num_refused} steps were refused, {counts.num_stateless} were ticks without a session. "
        "Nothing was written"
    )


def _records(path: Path) -> Iterator[Recorded]:
    try:
        _, steps = read_recording(path)
        yield from steps
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.DataError(f"{path} is damaged ({error}): no dataset was made of it") from None
    except OSError as error:
        raise errors.DataError(f"{path} cannot be read: {error.strerror}") from None


def _tick(builder: EpisodeBuilder, step: Recorded, spec: EnvSpec) -> None:
    body, _ = decode_body(step.data)
    builder.earn(reward_of(body))
    builder.see(_obs(body, spec), mask_of(body, spec.action.mask_size) if spec.has_mask else None)
    answer, _ = decode_body(step.body) if step.body else ({}, True)
    if "action" not in answer:
        raise errors.InvalidObservation(f"the answer has no action; it is {step.body[:80]!r}")
    builder.act(_action(answer["action"], spec))


def _end(builder: EpisodeBuilder, data: bytes, spec: EnvSpec) -> RecordedEpisode | None:
    body, _ = decode_body(data)
    builder.earn(reward_of(body))
    if body.get("obs") is not None:
        builder.see(_obs(body, spec))
    return builder.end(terminated=bool(body.get("terminated", True)))


def _obs(body: dict[str, Any], spec: EnvSpec) -> Any:
    if body.get("obs") is None:
        raise errors.InvalidObservation(f"the body has no obs, only {sorted(map(str, body))}")
    obs = observation(body["obs"], spec.obs, "obs")
    expect_finite(obs)
    return obs


def _action(value: Any, spec: EnvSpec) -> Any:
    wanted = spec.action.array
    try:
        array = np.asarray(value)
        is_action = array.dtype.kind in ("f" if wanted.dtype.kind == "f" else "") + "iu" and array.shape == wanted.shape
    except ValueError:  # lists of several lengths
        is_action = False
    if not is_action:
        raise errors.InvalidObservation(f"the action must be {wanted.dtype} of shape {wanted.shape}; it is {value!r}")
    return array.astype(wanted.dtype)
