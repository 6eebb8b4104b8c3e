from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import errors, launch
from ludus.data import codec
from ludus.program import Program, RestartPolicy
from ludus.services.buffer import service as service_module
from ludus.services.buffer.client import BufferConsumer, BufferProducer
from ludus.services.buffer.service import BufferService
from ludus.workers.remote import Remote

from .segments import Learner, Player, make, same, value_of, wait_until


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    program = Program("buffer")
    handle = program.add("buffer", BufferService, 2)
    with launch.local(program, project=tmp_path, threads=True) as run:
        yield run.remote(handle)


def test_a_segment_arrives_as_it_was_pushed(remote: Remote) -> None:
    producer, consumer = BufferProducer(remote, producer="p"), BufferConsumer(remote)
    segment = make(1, obs_size=50_000)
    assert producer.push(segment) == []
    assert producer.flush() == [segment]
    (item,) = consumer.take(1)
    assert same(item.segment, segment)


def test_a_producer_waits_only_for_its_credits_and_says_which_segments_are_free(remote: Remote) -> None:
    producer, consumer = BufferProducer(remote, producer="p", credits=2), BufferConsumer(remote)
    segments = [make(number) for number in range(6)]
    free = [free for segment in segments[:4] for free in producer.push(segment)]
    assert producer.statistics().num_unanswered >= 2
    wait_until(lambda: remote.statistics()["num_waiting_producers"] == 2)
    assert not producer.poll(0.01), "two are queued and two wait: there is no credit left"
    pushing = threading.Thread(target=lambda: free.extend(producer.push(segments[4])))
    pushing.start()
    assert [value_of(item.segment) for item in consumer.take(2)] == [0, 1]
    pushing.join(10)
    assert producer.poll(10)
    assert [value_of(item.segment) for item in consumer.take(2)] == [2, 3]
    free += producer.flush()
    assert [value_of(segment) for segment in free] == [0, 1, 2, 3, 4]
    stats = producer.statistics()
    assert (stats.num_pushed, stats.num_answered, stats.num_unanswered) == (5, 5, 0)
    assert producer.waited_s == stats.waited_s > 0.005


def test_a_take_from_afar_waits_and_ends_with_nothing_when_its_time_is_up(remote: Remote) -> None:
    producer, consumer = BufferProducer(remote, producer="p"), BufferConsumer(remote)
    assert consumer.take(1, timeout_s=0.02) == []
    taken = remote.submit("take", 2, None, 10.0)
    producer.push(make(1))
    producer.push(make(2))
    assert [item["segment_id"].rpartition("/")[2] for item in taken.result()] == ["1", "2"]
    with pytest.raises(errors.ConfigError, match="cannot take 3"):
        consumer.take(3)


def test_what_is_no_segment_is_refused_and_does_no_harm(remote: Remote) -> None:
    producer = BufferProducer(remote, producer="p")
    broken = make(1)
    broken.logp = broken.logp[:-1]
    producer.push(broken)
    with pytest.raises(errors.DataError, match="logp"):
        producer.flush()
    second = make(2)
    assert producer.push(second) == [broken], "the refused one may be written to again, too"
    assert producer.flush() == [second]


def test_a_producer_gives_up_in_the_end(remote: Remote) -> None:
    remote_that_is_gone = Remote("nobody", experiment="buffer", trial="t", names=remote.solver._names, timeout_s=0.05)
    producer = BufferProducer(remote_that_is_gone, producer="p", timeout_s=0.2)
    producer.push(make(1))
    with pytest.raises(errors.DeadlineExceeded, match="given up"):
        producer.flush()
    remote_that_is_gone.close()


@pytest.mark.chaos
def test_a_trainer_with_its_own_buffer_and_players_that_are_killed(tmp_path: Path) -> None:
    program = Program("buffer")
    learner = program.add("learner", Learner, capacity=3, batch=2)
    restarts = RestartPolicy(backoff_s=0.05)
    program.add("player", Player, learner, num_segments=10_000, replicas=2, restarts=restarts)
    with launch.local(program, project=tmp_path) as run:
        remote = run.remote(learner)
        wait_until(lambda: len(remote.taken()) >= 20 and len({i.rpartition("/")[0] for i, _ in remote.taken()}) == 2)
        (pid,) = [worker.pid for worker in run.workers() if worker.name == "player/0"]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        at_kill = {segment_id.rpartition("/")[0] for segment_id, _ in remote.taken()}
        wait_until(lambda: len({i.rpartition("/")[0] for i, _ in remote.taken()} - at_kill) == 1)
        num_taken = len(remote.taken())
        wait_until(lambda: len(remote.taken()) >= num_taken + 20)
        taken, stats = remote.taken(), remote.statistics()
        assert remote.most() <= 3
    ids = [segment_id for segment_id, _ in taken]
    assert len(set(ids)) == len(ids), "nothing is counted twice"
    by_producer: dict[str, list[int]] = {}
    for segment_id, value in taken:
        producer, _, number = segment_id.rpartition("/")
        assert value == int(number) - 1, "and nothing is torn, or mixed up with what its producer wrote later"
        by_producer.setdefault(producer, []).append(int(number))
    assert len(by_producer) == 3
    for numbers in by_producer.values():
        settled = set(range(1, max(numbers)))  # at most one was overtaken by the last, and is on its way
        assert len(settled - set(numbers)) <= 1, "nothing that was acknowledged is left out"
    assert stats["num_pushed"] == stats["num_taken"] + stats["size"]


@pytest.mark.chaos
def test_what_a_killed_buffer_had_not_queued_is_pushed_to_the_next_one(tmp_path: Path) -> None:
    program = Program("buffer")
    handle = program.add("buffer", BufferService, 1, restarts=RestartPolicy(backoff_s=0.05))
    with launch.local(program, project=tmp_path) as run:
        remote = run.remote(handle)
        producer, consumer = BufferProducer(remote, producer="p", credits=2), BufferConsumer(remote)
        for number in range(3):
            producer.push(make(number))
        wait_until(lambda: remote.statistics()["num_waiting_producers"] == 2)
        (pid,) = [worker.pid for worker in run.workers()]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        flushing = threading.Thread(target=producer.flush)
        flushing.start()
        got = []
        while len(got) < 2:
            try:
                got += [value_of(item.segment) for item in consumer.take(1, timeout_s=5.0)]
            except errors.OutcomeUnknown:  # asked the one that was just dying
                continue
        flushing.join(20)
        assert sorted(got) == [1, 2]
        assert producer.statistics().num_repeated >= 2
        assert consumer.take(1, timeout_s=0.05) == []


def test_no_more_is_taken_than_fits_into_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    service = BufferService(2000, of="nest")
    for number in range(1100):
        service.push({str(each): [number] for each in range(50)}, f"p/{number}")  # of 100 values each
    with pytest.raises(errors.ConfigError, match="Take fewer at once"):
        service.take(1100, None, 0.0)
    taken: list[Any] = []
    while len(service.buffer):
        some = service.take_some(1100, 0.0)
        assert isinstance(some, list)
        assert codec.encode(some), "it is not past the limits of the codec"
        taken += some
    assert [nest["0"] for nest in taken] == [[number] for number in range(1100)]
    monkeypatch.setattr(service_module, "_MAX_BYTES", 2000)
    for number in range(5):
        service.push(np.zeros(100) + number, f"q/{number}")
    sizes = [len(service.take_some(9, 0.0)) for _ in range(3)]  # type: ignore[arg-type]
    assert sizes == [2, 2, 1]
