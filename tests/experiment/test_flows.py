"""The flows, with real buffers and learners that note what they are given."""

from __future__ import annotations

import concurrent.futures
import errno
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ludus import errors
from ludus.clock import FakeClock
from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.experiment.flows.async_ import AsyncFlow
from ludus.experiment.flows.remote_source import RemoteSource
from ludus.experiment.flows.sync import SyncFlow
from ludus.experiment.wiring import _publisher
from ludus.learn.algorithms.learner import Sample, Update
from ludus.services.buffer.nest_buffer import NestBuffer
from ludus.services.simulator.episodes import Episode


class NotingLearner:
    """Learns nothing; notes what it was given."""

    def __init__(self) -> None:
        self.version = 0
        self.rewards: list[list[float]] = []
        self.progress: list[float] = []

    def update(self, sample: Sample, *, progress: float = 0.0) -> Update:
        self.rewards.append(sorted(set(sample.segment.reward.ravel().tolist())))
        self.progress.append(progress)
        self.version += 1
        return Update({"loss": 0.0})


class NotingFifo(NestBuffer):
    """Notes the ids of what is taken."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.taken: list[str] = []

    def take(self, *args: Any, **kwargs: Any) -> Any:
        items = super().take(*args, **kwargs)
        self.taken += [item.segment_id for item in items]
        return items


def make_segment(value: float = 0.0, *, version: int = 0, num_rows: int = 2, ends: bool = False) -> Segment:
    segment = Segment.allocate(4, num_rows, obs=ArraySpec((1,), np.float32), action=Discrete(2))
    segment.active[...] = True
    segment.reward[...] = value
    segment.version[...] = version
    if ends:
        segment.terminated[-1] = True
        segment.active[-1] = False
    return segment


def make_flow(buffer: NestBuffer, *, batch: int = 1, max_lag: int = 2) -> tuple[AsyncFlow, NotingLearner, list[int]]:
    learner, published = NotingLearner(), []
    flow = AsyncFlow(
        buffer,
        learner,  # type: ignore[arg-type]
        publish=lambda one: published.append(one.version),
        batch_segments=batch,
        max_lag=max_lag,
    )
    return flow, learner, published


def test_there_is_no_turn_before_a_batch_is_together() -> None:
    buffer = NestBuffer(4)
    flow, learner, published = make_flow(buffer, batch=2)
    assert flow.turn(0.0) is None
    buffer.push(make_segment(1.0), segment_id="a/1")
    assert flow.turn(0.0) is None
    buffer.push(make_segment(2.0), segment_id="b/1")
    report = flow.turn(0.25)
    assert report is not None
    assert report.num_steps == 16
    assert (learner.rewards, learner.progress, published) == ([[1.0, 2.0]], [0.25], [1])


def test_a_batch_may_be_asked_for_in_steps() -> None:
    buffer = NestBuffer(8)
    learner = NotingLearner()
    flow = AsyncFlow(buffer, learner, publish=lambda _: None, batch_segments=1, batch_steps=13, max_lag=2)  # type: ignore[arg-type]
    num_steps = make_segment().num_active
    for number in range(8):
        buffer.push(make_segment(), segment_id=f"a/{number + 1}")
    report = flow.turn(0.0)
    assert report is not None
    assert report.num_steps == -(-13 // num_steps) * num_steps, "whole segments, and no more than are needed"


class ThreadRanks:
    """Ranks that are threads: what they give is added up once all have come."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size)
        self._given: dict[int, float] = {}

    def rank(self, number: int) -> Any:
        def meet(value: float, how: Any) -> float:
            self._given[number] = value
            self._barrier.wait(60)
            result = how(self._given.values())
            self._barrier.wait(60)
            return float(result)

        return SimpleNamespace(
            rank=number,
            least=lambda value: meet(value, min),
            sum_numbers=lambda values: [meet(value, sum) for value in values],
        )


def test_a_rank_that_has_its_batch_does_not_update_before_the_others_have_theirs() -> None:
    """A sum over ranks would give up after a minute; games may stay away for longer."""
    ranks = ThreadRanks(2)
    buffers = [NestBuffer(4) for _ in range(2)]
    learners = [NotingLearner() for _ in range(2)]
    flows = [
        AsyncFlow(
            buffer,
            learner,
            publish=lambda _: None,
            batch_segments=2,
            max_lag=2,
            ranks=ranks.rank(number),
            waits_together=True,
        )  # type: ignore[arg-type]
        for number, (buffer, learner) in enumerate(zip(buffers, learners, strict=True))
    ]

    def turn() -> list[Any]:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda flow: flow.turn(0.0), flows))

    for number in (1, 2):
        buffers[0].push(make_segment(), segment_id=f"a/{number}")
    buffers[1].push(make_segment(), segment_id="b/1")
    assert turn() == turn() == [None, None]
    assert [learner.version for learner in learners] == [0, 0]
    buffers[1].push(make_segment(), segment_id="b/2")
    assert [report.num_steps for report in turn()] == [32, 32], "of both together"
    assert [learner.version for learner in learners] == [1, 1]


def test_the_lag_of_every_sample_is_reported_and_what_is_too_old_is_dropped_and_counted() -> None:
    buffer = NestBuffer(8)
    flow, learner, _ = make_flow(buffer, batch=2, max_lag=2)
    learner.version = 5
    for number, version in enumerate((2, 3, 1, 5)):
        buffer.push(make_segment(float(version), version=version), segment_id=f"a/{number + 1}")
    report = flow.turn(0.0)
    assert report is not None
    assert learner.rewards == [[3.0, 5.0]]
    assert (report.lag, report.max_lag) == (2.0, 2)  # rows of two versions count as the older
    assert report.counts["segments_stale"] == 2
    assert report.counts["segments_trained"] == 2
    assert report.counts["segments_pushed"] == 4


def test_a_segment_of_several_versions_is_as_old_as_its_oldest_step() -> None:
    buffer = NestBuffer(2)
    flow, learner, _ = make_flow(buffer, max_lag=2)
    learner.version = 9
    segment = make_segment(version=9)
    segment.version[0] = 6
    buffer.push(segment, segment_id="a/1")
    assert flow.turn(0.0) is None
    buffer.push(make_segment(version=9), segment_id="a/2")
    report = flow.turn(0.0)
    assert report is not None
    assert report.counts["segments_stale"] == 1


def test_nothing_is_trained_twice_and_everything_is_accounted_for() -> None:
    """Producers that push everything twice, from threads, into a small buffer with a trainer that drops some."""
    buffer = NotingFifo(3)
    flow, learner, _ = make_flow(buffer, batch=2, max_lag=4)
    num_producers, num_segments = 3, 40

    def produce(name: str) -> None:
        for number in range(1, num_segments + 1):
            for _ in range(2):
                queued = threading.Event()
                version = max(0, learner.version - (6 if number % 5 == 0 else 1))
                buffer.offer(
                    make_segment(version=version), segment_id=f"{name}/{number}", on_queued=lambda _e, q=queued: q.set()
                )
                assert queued.wait(30)

    threads = [threading.Thread(target=produce, args=(f"p{index}",), daemon=True) for index in range(num_producers)]
    for thread in threads:
        thread.start()
    counts: dict[str, float] = {}
    while any(thread.is_alive() for thread in threads) or len(buffer) >= 2:
        report = flow.turn(0.0)
        if report is not None:
            counts = dict(report.counts)
            total = counts["segments_trained"] + counts["segments_stale"] + counts["segments_queued"]
            assert total == counts["segments_pushed"]
            assert counts["segments_queued"] <= 3
    assert max(Counter(buffer.taken).values()) == 1
    assert counts["segments_stale"] > 0
    assert buffer.statistics().num_pushed == num_producers * num_segments
    assert buffer.statistics().num_duplicates == num_producers * num_segments


def test_producers_wait_while_the_trainer_is_slow() -> None:
    buffer = NestBuffer(2)
    flow, _, _ = make_flow(buffer)
    queued: list[int] = []
    for number in range(1, 6):
        buffer.offer(make_segment(), segment_id=f"a/{number}", on_queued=lambda _error, n=number: queued.append(n))
    assert queued == [1, 2]
    assert buffer.statistics().num_waiting_producers == 3
    flow.turn(0.0)
    assert queued == [1, 2, 3]
    flow.turn(0.0)
    flow.turn(0.0)
    assert queued == [1, 2, 3, 4, 5]


def test_episodes_are_added_up_for_each_simulator_also_over_what_is_dropped() -> None:
    buffer = NestBuffer(8)
    flow, learner, _ = make_flow(buffer, max_lag=1)
    learner.version = 3
    buffer.push(make_segment(1.0, version=0, num_rows=1), segment_id="a-x/1")  # too old
    buffer.push(make_segment(5.0, version=3, num_rows=1), segment_id="b-x/1")
    buffer.push(make_segment(1.0, version=3, num_rows=1, ends=True), segment_id="a-x/2")
    first, second = flow.turn(0.0), flow.turn(0.0)
    assert first is not None
    assert second is not None
    assert first.episodes == []
    assert second.episodes == [Episode(8.0, 8)]


def test_closing_the_flow_turns_producers_away() -> None:
    buffer = NestBuffer(1)
    flow, _, _ = make_flow(buffer)
    flow.close()
    with pytest.raises(errors.Unreachable):
        buffer.push(make_segment(), segment_id="a/1")


# --- sync


class ScriptedCall:
    def __init__(self, outcome: Any) -> None:
        self._outcome = outcome

    def result(self) -> Any:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class ScriptedSimulators:
    """Replicas that answer what their script says, in turn."""

    def __init__(self, scripts: list[list[Any]], index: int | None = None) -> None:
        self._scripts = scripts
        self._index = index
        self.asked: list[str] = []

    def replica(self, index: int) -> ScriptedSimulators:
        return ScriptedSimulators(self._scripts, index)

    @property
    def is_there(self) -> bool:
        assert self._index is not None
        return bool(self._scripts[self._index])

    def submit(self, command: str, *args: Any) -> ScriptedCall:
        assert self._index is not None
        outcome = self._scripts[self._index].pop(0)
        return ScriptedCall(outcome)


def answer(value: float, *, incarnation: str = "a", ends: bool = True) -> dict[str, Any]:
    segment = make_segment(value, ends=ends).to_nest()
    return {"segment": segment, "step_s": 1.0, "act_s": 1.0, "incarnation": incarnation}


def test_segments_of_simulators_are_joined_in_their_order_also_when_one_was_lost() -> None:
    lost = errors.OutcomeUnknown("it is gone")
    source = RemoteSource(ScriptedSimulators([[answer(1.0)], [lost, lost, answer(2.0)]]), [0, 1])  # type: ignore[arg-type]
    segment, episodes = source.collect(NotingLearner())  # type: ignore[arg-type]
    assert segment.reward[0].tolist() == [1.0, 1.0, 2.0, 2.0]
    assert [episode.total for episode in episodes] == [4.0, 4.0, 8.0, 8.0]


def test_episodes_of_a_simulator_that_was_lost_are_forgotten() -> None:
    script = [answer(1.0, ends=False), answer(5.0, incarnation="b")]
    source = RemoteSource(ScriptedSimulators([script]), [0])  # type: ignore[arg-type]
    assert source.collect(NotingLearner())[1] == []  # type: ignore[arg-type]
    assert source.counts() == {"simulators_lost": 0}
    assert [episode.total for episode in source.collect(NotingLearner())[1]] == [20.0, 20.0]  # type: ignore[arg-type]
    assert source.counts() == {"simulators_lost": 1}


def test_a_checkpoint_while_a_simulator_is_lost_is_without_the_envs() -> None:
    gone = errors.Unreachable("it is gone")
    source = RemoteSource(ScriptedSimulators([[{"envs": []}], [gone]]), [0, 1])  # type: ignore[arg-type]
    assert source.save() is None


def test_a_checkpoint_does_not_wait_for_a_simulator_that_has_left() -> None:
    source = RemoteSource(ScriptedSimulators([[{"envs": []}], []]), [0, 1])  # type: ignore[arg-type]
    assert source.save() is None


def test_a_checkpoint_of_more_simulators_is_refused() -> None:
    source = RemoteSource(ScriptedSimulators([[]]), [0])  # type: ignore[arg-type]
    with pytest.raises(errors.CheckpointError, match="of 2 simulators, this run has 1"):
        source.restore({"envs": [{}, {}], "logs": [None, None]})


@pytest.mark.parametrize("kind", [errors.EnvError, errors.OutcomeUnknown, errors.Unreachable])
def test_a_simulator_whose_envs_cannot_be_put_back_begins_new_episodes_beside_the_others(
    kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """Its envs cannot do that, or it dies first."""
    log = {"total": np.array([100.0, 100.0]), "length": np.array([7, 7])}
    cannot = kind("it is not deterministic")
    script: list[list[Any]] = [[cannot, answer(1.0)], [None, answer(2.0)]]
    source = RemoteSource(ScriptedSimulators(script), [0, 1])  # type: ignore[arg-type]
    assert source.restore({"envs": [{}, {}], "logs": [log, log]}) is False
    assert "it is not deterministic" in caplog.text
    episodes = source.collect(NotingLearner())[1]  # type: ignore[arg-type]
    assert [episode.total for episode in episodes] == [4.0, 4.0, 108.0, 108.0]


@pytest.mark.parametrize("others", [0.0, 1.0])
def test_envs_go_on_exactly_only_if_those_of_all_ranks_do(others: float) -> None:
    class Ranks:
        def least(self, number: float) -> float:
            return min(number, others)

    source = RemoteSource(ScriptedSimulators([[None]]), [0])  # type: ignore[arg-type]
    flow = SyncFlow(source, NotingLearner(), ranks=Ranks())  # type: ignore[arg-type]
    assert flow.restore({"source": {"envs": [{}], "logs": [None]}}) is bool(others)
    assert flow.restore(None) is False


def test_a_round_of_sync_is_collect_train_publish() -> None:
    learner, log = NotingLearner(), []

    class OneSource:
        def collect(self, learner: Any) -> Any:
            log.append(f"collect {learner.version}")
            return make_segment(1.0), []

        def seconds(self) -> dict[str, float]:
            return {"step_envs": 0.0}

        def counts(self) -> dict[str, float]:
            return {}

        def save(self) -> Any:
            return None

    flow = SyncFlow(OneSource(), learner, publish=lambda one: log.append(f"publish {one.version}"))  # type: ignore[arg-type]
    for _ in range(2):
        assert flow.turn(0.0).num_steps == 8
    assert log == ["collect 0", "publish 1", "collect 1", "publish 2"]
    assert flow.restore(flow.save()) is False


class FullDisk:
    """A weights service that cannot write for a while."""

    store = SimpleNamespace(folder="versions")

    def __init__(self, clock: FakeClock, until: float) -> None:
        self._clock, self._until = clock, until
        self.published: list[int] = []

    def publish(self, model: str, weights: Any, *, number: int) -> None:
        if self._clock.now() < self._until:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.published.append(number)


def test_training_waits_for_room_on_a_full_disk_for_as_long_as_it_takes(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    disk = FullDisk(clock, until=600.0)
    learner = SimpleNamespace(version=7, policy=SimpleNamespace(weights=dict))
    _publisher(disk, clock=clock)(learner)  # type: ignore[arg-type]
    assert disk.published == [7]
    assert 2 <= caplog.text.count("make room") <= 12


def test_a_version_that_another_process_published_ends_the_run_with_the_reason() -> None:
    class Taken:
        def publish(self, *_args: Any, **_kwargs: Any) -> None:
            raise errors.DataError("version 7 of policy is abc already")

    learner = SimpleNamespace(version=7, policy=SimpleNamespace(weights=dict))
    with pytest.raises(errors.TrainingError, match=r"another process has published version 7 .* abc already"):
        _publisher(Taken())(learner)  # type: ignore[arg-type]
