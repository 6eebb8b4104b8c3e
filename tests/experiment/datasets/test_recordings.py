"""Recorded sessions become episodes: every action with what was seen before it and what it brought."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ludus.core import EnvSpec
from ludus.data.actions import Continuous, Discrete
from ludus.data.spec import ArraySpec
from ludus.errors import DataError
from ludus.experiment.datasets.recordings import (
    RecordingCounts,
    dataset_from_recordings,
    find_recordings,
    recorded_episodes,
)
from ludus.gateway.actor import Actor
from ludus.gateway.record import Recorder, count_records
from ludus.gateway.session_core import SessionCore, SessionLimits
from ludus.gateway.step import Step

SPEC = EnvSpec(name="s", obs=ArraySpec((2,), np.float32), action=Discrete(3))


class Summing(Actor):
    """The action is the first number of the observation."""

    def start(self, session: Any, data: bytes) -> bytes:
        return self.tick(data) if data else b""

    def tick(self, data: bytes) -> bytes:
        if data[:1] in b"[{":
            body = json.loads(data)
            obs = body["obs"] if isinstance(body, dict) else body
            return json.dumps({"action": int(obs[0])}).encode()
        body = msgspec.msgpack.decode(data)
        obs = np.frombuffer(body["obs"], np.float32) if isinstance(body, dict) else body
        return msgspec.msgpack.encode({"action": int(obs[0])})


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def record(path: Path, steps: list[tuple[str | None, str, Any]], actor: Any = Summing) -> Path:
    """Steps of `(kind, session or session#run, body)`; "lapse" in the place of a kind lets all leases run out."""
    recorder, clock = Recorder(path), Clock()
    sessions = SessionCore(actor, observer=recorder, limits=SessionLimits(lease_s=10.0), clock=clock)
    for kind, session, body in steps:
        if kind == "lapse":
            clock.now += 11.0
            sessions.sweep()
            continue
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        name, _, run = session.partition("#")
        sessions.step(Step(kind, name, data, run=run), lambda outcome: None)
    recorder.close()
    return path


def test_sessions_that_play_at_once_are_episodes_of_their_own(tmp_path: Path) -> None:
    log = record(
        tmp_path / "log",
        [
            ("start", "a", {"obs": [0, 5], "reward": 7.0}),
            ("start", "b", b""),
            ("tick", "a", {"obs": [1, 5], "reward": 0.5}),
            ("tick", "b", [2, 6]),
            ("tick", "a", {"obs": [2, 5], "reward": 0.25}),
            ("end", "b", {"reward": -1.0}),
            ("end", "a", {"obs": [3, 5], "reward": 2.0, "terminated": False}),
        ],
    )
    b, a = recorded_episodes(log, SPEC)
    assert a.obs.tolist() == [[0, 5], [1, 5], [2, 5], [3, 5]]
    assert a.action.tolist() == [0, 1, 2]
    assert a.reward.tolist() == [0.5, 0.25, 2.0], "what a start says it brought is for nothing that was done"
    assert not a.terminated
    assert b.obs.tolist() == [[2, 6], [2, 6]]
    assert (b.action.tolist(), b.reward.tolist(), b.terminated) == ([2], [-1.0], True)
    assert count_records(log) == 7


def test_a_session_without_an_end_of_its_own_is_cut_off(tmp_path: Path) -> None:
    log = record(
        tmp_path / "log",
        [
            ("start", "replaced#1", [1, 0]),
            ("start", "replaced#2", [2, 0]),
            ("start", "lapses", [0, 1]),
            ("lapse", "", b""),
            ("start", "unfinished", [1, 1]),
            ("tick", "unfinished", [2, 1]),
            ("start", "nothing", b""),
            ("start", "empty end", [1, 2]),
            ("end", "empty end", b""),
        ],
    )
    counts = RecordingCounts()
    episodes = list(recorded_episodes(log, SPEC, counts))
    assert [one.obs[0].tolist() for one in episodes] == [[1, 0], [2, 0], [0, 1], [1, 2], [1, 1]]
    assert not any(one.terminated for one in episodes)
    assert (counts.num_sessions, counts.num_cut_off) == (6, 5)


def test_refused_steps_and_ticks_without_a_session_are_left_out_and_counted(tmp_path: Path) -> None:
    log = record(
        tmp_path / "log",
        [
            (None, "", [1, 1]),
            ("start", "a", [0, 0]),
            ("tick", "a", {"no": "obs"}),  # the actor raises: 500
            ("tick", "a", {"obs": [1, 0], "reward": 1.0}),
            ("end", "a", {"terminated": True}),
        ],
    )
    counts = RecordingCounts()
    (episode,) = recorded_episodes(log, SPEC, counts)
    assert (episode.action.tolist(), episode.reward.tolist()) == ([0, 1], [1.0, 0.0])
    assert (counts.num_refused, counts.num_stateless) == (1, 1)


def test_bodies_may_be_msgpack_with_bytes_and_masks(tmp_path: Path) -> None:
    spec = EnvSpec(name="m", obs=SPEC.obs, action=SPEC.action, has_mask=True)
    body = {"obs": np.float32([1, 2]).tobytes(), "mask": [True, True, False]}
    log = record(tmp_path / "log", [("start", "a", msgspec.msgpack.encode(body)), ("end", "a", b"")])
    (episode,) = recorded_episodes(log, spec)
    assert episode.mask is not None
    assert episode.mask.tolist() == [[True, True, False], [True, True, True]]
    assert episode.obs[0].tolist() == [1, 2]


def test_a_recording_that_does_not_fit_its_spec_says_where_and_writes_nothing(tmp_path: Path) -> None:
    log = record(tmp_path / "log", [("start", "a", [1, 1]), ("tick", "a", [2, 2])])
    wrong = EnvSpec(name="w", obs=ArraySpec((3,), np.float32), action=Discrete(3))
    with pytest.raises(DataError, match=r"log, record 0 \(start of session a\): obs must be an array of shape \(3,\)"):
        dataset_from_recordings([log], tmp_path / "data", wrong)
    narrow = EnvSpec(name="w", obs=SPEC.obs, action=Discrete(2))
    with pytest.raises(DataError, match="not between 0 and 1"):
        dataset_from_recordings([log], tmp_path / "data", narrow)
    continuous = EnvSpec(name="w", obs=SPEC.obs, action=Continuous((-1.0,), (1.0,)))
    with pytest.raises(DataError, match=r"the action must be float32 of shape \(1,\); it is 1"):
        dataset_from_recordings([log], tmp_path / "data", continuous)
    assert not (tmp_path / "data").exists()


class Silent(Actor):
    def tick(self, data: bytes) -> bytes:
        return b"ok"


def test_answers_of_another_kind_of_actor_are_no_actions(tmp_path: Path) -> None:
    log = record(tmp_path / "log", [("start", "a", b""), ("tick", "a", [2, 2])], Silent)
    with pytest.raises(DataError, match=r"neither JSON nor msgpack|has no action"):
        list(recorded_episodes(log, SPEC))


def test_a_recording_without_a_step_makes_no_dataset(tmp_path: Path) -> None:
    log = record(tmp_path / "log", [(None, "", [1, 1]), ("start", "a", b"")])
    with pytest.raises(DataError, match="of 2 recorded steps none is a step of an episode: 1 sessions began"):
        dataset_from_recordings([log], tmp_path / "data", SPEC)


def test_damaged_recordings_are_refused_and_cut_off_ones_read_up_to_there(tmp_path: Path) -> None:
    log = record(tmp_path / "log", [("start", "a", [1, 1]), ("tick", "a", [2, 2]), ("end", "a", b"")])
    whole = log.read_bytes()
    log.write_bytes(whole[:-3])
    (episode,) = recorded_episodes(log, SPEC)
    assert (episode.num_steps, count_records(log)) == (2, 2)
    log.write_bytes(whole[:-40] + b"\xc1" * 40)
    with pytest.raises(DataError, match="is damaged"):
        dataset_from_recordings([log], tmp_path / "data", SPEC)
    log.write_bytes(b"\x05\0\0\0hello")
    with pytest.raises(DataError, match="not a recording"):
        dataset_from_recordings([log], tmp_path / "data", SPEC)


def test_folders_stand_for_their_recordings(tmp_path: Path) -> None:
    inside = tmp_path / "trial" / "recordings"
    inside.mkdir(parents=True)
    names = [inside / f"actor-{index}-x.sessions" for index in range(2)]
    for name in names:
        record(name, [("start", "a", [1, 1])])
    assert find_recordings([inside]) == find_recordings([tmp_path / "trial"]) == names
    with pytest.raises(DataError, match="has no recordings"):
        find_recordings([tmp_path])
    with pytest.raises(DataError, match="there is no recording"):
        find_recordings([tmp_path / "other"])
    dataset, counts = dataset_from_recordings(names, tmp_path / "data", SPEC)
    assert (dataset.num_episodes, counts.num_records) == (2, 2)


def test_bytes_that_are_no_text_are_damage_too(tmp_path: Path) -> None:
    log = record(tmp_path / "log", [("start", "a", [1, 1]), ("tick", "a", {"obs": [2, 2]}), ("end", "a", b"")])
    whole = log.read_bytes()
    for kind, message in ((b"tick", "is damaged"), (b"obs", "neither JSON nor msgpack"), (b"began", "not a recording")):
        log.write_bytes(whole.replace(kind, b"\xff" * len(kind)))
        with pytest.raises(DataError, match=message):
            dataset_from_recordings([log], tmp_path / "data", SPEC)


def test_a_reward_beyond_all_floats_is_refused(tmp_path: Path) -> None:
    body = b'{"obs": [2, 2], "reward": 1' + b"0" * 400 + b"}"
    log = record(tmp_path / "log", [("start", "a", [1, 1]), ("tick", "a", body)])
    with pytest.raises(DataError, match="a reward is a number"):
        dataset_from_recordings([log], tmp_path / "data", SPEC)


def test_what_is_left_out_of_a_torn_recording_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = record(tmp_path / "log", [("start", "a", [1, 1]), ("tick", "a", [2, 2]), ("end", "a", b"")])
    list(recorded_episodes(log, SPEC))
    assert not caplog.records
    log.write_bytes(log.read_bytes()[:-3])
    list(recorded_episodes(log, SPEC))
    assert "are torn or damaged, and left out" in caplog.text
