"""The replay service and its clients, in processes that are stopped and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import ludus
from ludus import errors, launch
from ludus.program import Program, RestartPolicy
from ludus.services.buffer.limiters import MinSize, Queue, SamplesPerInsert
from ludus.services.buffer.replay_client import ReplayClient, connect
from ludus.services.buffer.replay_service import INSERTED, ReplayService
from ludus.services.buffer.selectors import Fifo
from ludus.services.buffer.sharded_replay import ShardedReplayClient
from ludus.services.buffer.table import TableSettings

from .replay_rows import SPEC, client_process, line_of, numbers_of, rows, served
from .segments import wait_until

BAND = TableSettings(limiter=SamplesPerInsert(ratio=1.0, min_size=4, tolerance=4.0))


def test_an_insert_that_comes_again_is_inserted_once() -> None:
    with served(TableSettings(), num_slots=16) as address:
        client = connect(address)
        for _ in range(3):
            assert client._remote.submit("insert", rows(1, 2), "me/1").result() == INSERTED
        stats = client.statistics()
        assert (stats["size"], stats["num_inserted"], stats["num_duplicates"]) == (2, 2, 2)
        client.close()


def test_the_limiter_holds_up_inserts_and_samples_and_says_why() -> None:
    with served(BAND, num_slots=64) as address:
        client = connect(address, num_ahead=0, credits=1)
        with pytest.raises(errors.DeadlineExceeded, match="has 0 items and needs 4"):
            client.sample(2, timeout_s=0.05)
        client.insert(rows(*range(4)))
        client.insert(rows(*range(4, 8)))
        client.flush()
        client._timeout_s = 0.05
        client.insert(rows(9, 10))
        with pytest.raises(errors.DeadlineExceeded, match=r"2 rows were not inserted.*inserting waits for samples"):
            client.flush()
        assert client.statistics()["inserting"].startswith("inserting waits for samples")
        client._timeout_s = 60.0
        client.insert(rows(9, 10))
        other = connect(address, num_ahead=0)
        assert len(numbers_of(other.sample(4)[0])) == 4, "which makes room for the insert that waits"
        client.flush()
        assert client.statistics()["num_inserted"] == 10
        assert client.client_stats().insert_waited_s > 0
        with pytest.raises(errors.ConfigError, match="Raise tolerance"):
            other.sample(9)
        for each in (client, other):
            each.close()


def test_a_queue_gives_each_row_to_one_client_in_order() -> None:
    queue = TableSettings(sampler=Fifo(), limiter=Queue(capacity=8), max_times_sampled=1)
    with served(queue, num_slots=8) as address:
        producer, consumer = connect(address, credits=1), connect(address, num_ahead=0)
        produce = threading.Thread(
            target=lambda: [*(producer.insert(rows(n, n + 1)) for n in range(0, 60, 2)), producer.flush()]
        )
        produce.start()
        taken = [number for _ in range(15) for number in numbers_of(consumer.sample(4)[0])]
        produce.join(20)
        assert taken == list(range(60))
        producer.close()
        consumer.close()


def test_rows_that_are_overwritten_while_they_are_read_are_drawn_again_and_never_torn() -> None:
    with (
        served(TableSettings(limiter=MinSize(min_size=64)), num_slots=64) as address,
        client_process(address, "n = 0\nwhile True:\n    client.insert(rows(*range(n, n + 32)))\n    n += 32"),
    ):
        reader = connect(address, num_ahead=1)
        for _ in range(500):
            assert len(numbers_of(reader.sample(16)[0])) == 16
        stats = reader.client_stats()
        assert stats.is_mapped
        assert stats.num_overwritten > 0, "otherwise this has not tried anything"
        reader.close()


def test_a_client_that_is_stopped_or_killed_holds_up_nobody() -> None:
    with served(BAND, num_slots=64) as address:
        script = "client.insert(rows(*range(8)))\nclient.flush()\nprint(1, flush=True)\n"
        script += "while True: client.insert(rows(1, 2))"
        with client_process(address, script) as stopped, client_process(address, "client.sample(2)") as killed:
            assert line_of(stopped) == 1
            mine = connect(address, num_ahead=0, credits=1)
            wait_until(lambda: mine.statistics()["num_waiting_inserts"] > 0)
            os.kill(stopped.pid, signal.SIGSTOP)
            os.kill(killed.pid, signal.SIGKILL)
            is_over = threading.Event()
            learner = connect(address, num_ahead=0)

            def learn() -> None:
                while not is_over.is_set():
                    with contextlib.suppress(errors.DeadlineExceeded):
                        learner.sample(2, timeout_s=0.1)

            learning = threading.Thread(target=learn)
            learning.start()
            for number in range(100, 160, 2):
                mine.insert(rows(number, number + 1))
            mine.flush()
            is_over.set()
            learning.join(20)
            assert mine.client_stats().num_inserted == 60
            learner.close()
            stopped.kill()
            wait_until(lambda: mine.statistics()["num_waiting_inserts"] == 0)
            assert mine.statistics()["num_waiting_draws"] == 0
            mine.close()


@pytest.mark.chaos
def test_acknowledged_inserts_survive_kill_9_of_a_service_that_persists(tmp_path: Path) -> None:
    program = Program("replay")
    handle = program.add(
        "replay",
        ReplayService,
        SPEC,
        num_slots=5000,
        folder=tmp_path / "kept",
        persist=True,
        restarts=RestartPolicy(backoff_s=0.05),
    )
    with launch.local(program, project=tmp_path) as run:
        client = ReplayClient(run.remote(handle), credits=4)
        number = 0
        for _kill in range(2):
            for _ in range(100):
                client.insert(rows(number, number + 1, number + 2))
                number += 3
            (pid,) = [worker.pid for worker in run.workers()]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        client.insert(rows(number))
        client.flush()
        there = run.remote(handle).gather(np.arange(client.statistics()["num_inserted"] + 100))
        kept = [n for n, is_there in zip(there["rows"]["number"].tolist(), there["is_there"], strict=True) if is_there]
        assert sorted(kept) == list(range(number + 1)), "each row once"
        assert client.statistics()["size"] == number + 1
        assert len(numbers_of(client.sample(64)[0])) == 64
        assert client.client_stats().is_mapped


@pytest.mark.chaos
def test_a_client_goes_on_with_the_memory_of_the_next_service(tmp_path: Path) -> None:
    program = Program("replay")
    handle = program.add("replay", ReplayService, SPEC, num_slots=64, restarts=RestartPolicy(backoff_s=0.05))
    with launch.local(program, project=tmp_path) as run:
        client = ReplayClient(run.remote(handle))
        client.insert(rows(*range(8)))
        client.flush()
        assert set(numbers_of(client.sample(32)[0])) <= set(range(8))
        folder = Path(run.remote(handle).describe()["folder"])
        (pid,) = [worker.pid for worker in run.workers()]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        client.insert(rows(*range(100, 108)))
        client.flush()
        wait_until(lambda: set(numbers_of(client.sample(32)[0])) <= set(range(100, 108)))
        assert client.client_stats().is_mapped
        assert not folder.exists(), "the next service has removed what the killed one left"
        folder = Path(run.remote(handle).describe()["folder"])
        assert folder.exists()
    assert not folder.exists()


def test_two_services_of_the_local_engine_are_one_replay(tmp_path: Path) -> None:
    program = Program("replay")
    handle = program.add("replay", ReplayService, SPEC, num_slots=64, replicas=2)
    with launch.local(program, project=tmp_path) as run:
        remote = run.remote(handle)
        replay = ShardedReplayClient([ReplayClient(remote.replica(index)) for index in range(2)])
        for number in range(0, 30, 3):  # twice as many in the first
            replay.insert(rows(number, number + 1, number + 2), stream=number % 2 if number < 15 else 0)
        replay.flush()
        stats = replay.statistics()
        assert stats["size"] == 30
        assert sorted(shard["size"] for shard in stats["shards"]) == [6, 24]
        drawn = [number for _ in range(50) for number in numbers_of(replay.sample(40)[0])]
        assert set(drawn) == set(range(30))
        share = np.bincount(drawn, minlength=30) / len(drawn)
        assert share == pytest.approx(np.full(30, 1 / 30), abs=0.015), "as if they were one"
        replay.close()


def test_persisting_needs_a_folder_and_the_same_settings(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="needs a folder"):
        ReplayService(SPEC, num_slots=8, persist=True)
    first = ReplayService(SPEC, num_slots=8, folder=tmp_path, persist=True)
    with pytest.raises(errors.ProgramError, match="another process keeps its replay"):
        ReplayService(SPEC, num_slots=8, folder=tmp_path, persist=True)
    first.close()
    with pytest.raises(errors.ConfigError, match="they were not touched"):
        ReplayService(SPEC, num_slots=9, folder=tmp_path, persist=True)
    ReplayService(SPEC, num_slots=8, folder=tmp_path, persist=True).close()


def test_a_folder_on_disk_that_does_not_persist_starts_empty(tmp_path: Path) -> None:
    for _ in range(2):
        service = ReplayService(SPEC, num_slots=8, folder=tmp_path)
        assert service.statistics()["size"] == 0
        assert service.insert(rows(1, 2), "a/1") == INSERTED
        service.close()


@pytest.mark.chaos
def test_the_driver_of_a_trial_removes_what_a_killed_service_left(tmp_path: Path) -> None:
    with ludus.init(str(tmp_path), "t") as trial:
        program = Program("ludus")
        program.add("replay", ReplayService, SPEC, num_slots=64, restarts=RestartPolicy(backoff_s=600.0))
        run = trial.run(program)
        folder = Path(trial.remote("replay").describe()["folder"])
        assert folder.exists()
        (pid,) = [worker.pid for worker in run.workers()]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(worker.pid == pid for worker in run.workers()))
        assert folder.exists()
    assert not folder.exists()


def test_a_call_may_not_ask_for_more_than_can_be_answered() -> None:
    service = ReplayService(SPEC, TableSettings(), num_slots=16)
    service.insert(rows(1, 2, 3), "a/1")
    for n, rows_too in ((10**12, False), (1_000_000, True)):
        with pytest.raises(errors.ConfigError, match="too many for one call"):
            service.draw(n, 1, 0.0, rows_too)
    for n in (0, 1.5, "2", None):
        with pytest.raises(errors.ConfigError, match="both are 1 or more"):
            service.draw(n)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="too many for one call"):
        service.gather(np.zeros(1_000_000, np.int64))
    drawn = service.draw(10, 10**12)
    assert isinstance(drawn, dict)
    assert len(drawn["keys"]) <= 1 << 20
    service.close()
