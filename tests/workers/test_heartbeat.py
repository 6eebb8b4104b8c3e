"""The heartbeat: what a loop is doing, seen from beside it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ludus import core, discovery
from ludus.clock import FakeClock
from ludus.workers.heartbeat import Beat, Heartbeat, decode_beat, encode_beat
from ludus.workers.register import register
from ludus.workers.server import WorkerServer
from ludus.workers.solver import Solver
from ludus.workers.worker import Worker, make_worker


class Gate(Worker):
    """Its poll goes through at once, or waits until it is opened."""

    def __init__(self, server: WorkerServer) -> None:
        super().__init__(server)
        self.is_shut = False
        self.entered, self.opened = threading.Event(), threading.Event()

    def _poll(self) -> int:
        if not self.is_shut:
            return 0
        self.entered.set()
        assert self.opened.wait(60)
        self.is_shut = False
        self.entered.clear()
        return 1


class Idle(Gate):
    """After its first poll it waits for requests."""

    idle_s = 600.0


class Napper:
    def __init__(self, entered: threading.Event, opened: threading.Event) -> None:
        self.entered, self.opened = entered, opened

    @register
    def nap(self) -> str:
        self.entered.set()
        assert self.opened.wait(60)
        return "awake"


@pytest.fixture
def names(request: pytest.FixtureRequest) -> Iterator[core.Names]:
    connected = discovery.connect(f"memory://{request.node.name}")
    yield connected
    connected.close()


@pytest.fixture
def host(names: core.Names) -> Iterator[Any]:
    """`host(worker_class, *args)` runs one in a thread and returns it, once it runs."""
    running: list[tuple[Worker, threading.Thread]] = []

    def run(cls: type, *args: Any) -> Worker:
        worker = make_worker(WorkerServer("w/0", experiment="e", trial="t", names=names, ttl=0.3), cls, args, {})
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        running.append((worker, thread))
        wait_until(lambda: worker.status is core.WorkerStatus.RUNNING)
        return worker

    yield run
    for worker, thread in running:
        worker.request_exit("the test is over")
        thread.join(60)
        assert not thread.is_alive()


def wait_until(is_so: Any) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.002)


def test_a_beat_survives_the_pipe() -> None:
    beat = Beat(number=3, status=core.WorkerStatus.RUNNING, doing="update", busy_s=4.125, report={"step": 7.0})
    assert decode_beat(encode_beat(beat).rstrip(b"\n")) == beat
    assert beat.describe() == "busy: update, 4.1 s"
    with pytest.raises(ValueError, match="not a beat"):
        decode_beat(b'{"number": 3')


def test_before_there_is_a_worker_the_process_is_starting() -> None:
    beat = Heartbeat(lambda beat: None, clock=FakeClock(5.0)).look()
    assert (beat.doing, beat.has_worked) == ("start", False)


def test_a_loop_that_waits_is_not_busy_however_long(host: Any) -> None:
    worker, clock = host(Idle), FakeClock(0.0)
    wait_until(lambda: worker._num_polls)
    heartbeat = Heartbeat(lambda beat: None, max_busy_s=1.0, on_hung=pytest.fail, clock=clock)
    heartbeat.attach(worker)
    wait_until(lambda: not heartbeat.look().doing)
    for _ in range(5):
        clock.advance(100.0)
        beat = heartbeat.look()
        assert (beat.doing, beat.busy_s, beat.describe()) == ("", 0.0, "running")


def test_a_poll_that_does_not_return_is_busy_and_past_its_limit_hung(host: Any) -> None:
    worker, clock, hung = host(Gate), FakeClock(0.0), []
    heartbeat = Heartbeat(lambda beat: None, max_busy_s=30.0, on_hung=lambda *said: hung.append(said), clock=clock)
    heartbeat.attach(worker)
    worker.is_shut = True
    assert worker.entered.wait(60)
    heartbeat.look()
    clock.advance(20.0)
    assert heartbeat.look().describe() == "busy: poll, 20.0 s"
    assert hung == []
    clock.advance(20.0)
    heartbeat.look()
    heartbeat.look()
    ((reason, stack),) = hung
    assert "'poll' for 40 s" in reason
    assert "opened.wait(60)" in stack
    worker.opened.set()
    wait_until(lambda: not worker.entered.is_set())
    assert heartbeat.look().busy_s < 1.0


def test_without_a_limit_a_busy_loop_is_never_hung(host: Any) -> None:
    worker, clock = host(Gate), FakeClock(0.0)
    heartbeat = Heartbeat(lambda beat: None, on_hung=pytest.fail, clock=clock)
    heartbeat.attach(worker)
    worker.is_shut = True
    assert worker.entered.wait(60)
    heartbeat.look()
    clock.advance(1e6)
    assert heartbeat.look().busy_s == 1e6
    worker.opened.set()


def test_a_call_is_named_by_its_command_and_counts_as_work_when_it_is_done(host: Any, names: core.Names) -> None:
    entered, opened = threading.Event(), threading.Event()
    worker = host(Napper, entered, opened)
    heartbeat = Heartbeat(lambda beat: None)
    heartbeat.attach(worker)
    with Solver("e", "t", names=names) as solver:
        call = solver.submit("w", "nap")
        assert entered.wait(60)
        beat = heartbeat.look()
        assert (beat.doing, beat.has_worked) == ("nap", False)
        opened.set()
        assert call.result() == "awake"
    wait_until(lambda: heartbeat.look().has_worked)


def test_a_worker_that_warms_up_may_be_busy_ten_times_as_long(host: Any) -> None:
    worker, clock, hung = host(Gate), FakeClock(0.0), []
    worker.is_warming_up = lambda doing: doing == "poll"
    heartbeat = Heartbeat(lambda beat: None, max_busy_s=30.0, on_hung=lambda *said: hung.append(said), clock=clock)
    heartbeat.attach(worker)
    worker.is_shut = True
    assert worker.entered.wait(60)
    heartbeat.look()
    clock.advance(299.0)
    heartbeat.look()
    assert hung == []
    clock.advance(2.0)
    heartbeat.look()
    assert len(hung) == 1
    worker.opened.set()


def test_callers_are_notified_while_a_loop_is_held_up(
    host: Any, names: core.Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.workers.heartbeat.HELD_UP_S", 0.1)
    worker = host(Gate)
    heartbeat = Heartbeat(lambda beat: None)
    heartbeat.attach(worker)
    heartbeat.start()
    worker.is_shut = True
    assert names.wait("e/t/held-up/w/0", 60) == "poll"
    worker.opened.set()
    wait_until(lambda: not names.find_subtree("e/t/held-up"))
    heartbeat.close()


class Payloads(Worker):
    """A poll that works; what it does after that is not awaited by the heartbeat."""

    def __init__(self, server: WorkerServer, seen: list[bool], beats: list[Beat]) -> None:
        super().__init__(server)
        self._seen, self._beats = seen, beats
        server.register_handler("work", self._note_beats)

    def has_worked(self, *, is_busy: bool) -> bool:
        return self.server.num_run > int(is_busy)

    def _note_beats(self) -> None:
        """Whether the driver knows, while this call runs, that something was done before it."""
        self._seen.append(any(beat.has_worked for beat in self._beats))

    def _poll(self) -> int:
        return 0


def test_the_first_unit_of_work_is_reported_before_the_next_one_begins(host: Any, names: core.Names) -> None:
    """The next one may end the process, and then a worker that has worked must not look as if it never had."""
    beats: list[Beat] = []
    seen: list[bool] = []
    worker = host(Payloads, seen, beats)
    Heartbeat(beats.append).attach(worker)  # not started: nothing is sampled
    num_polls = worker._num_polls
    wait_until(lambda: worker._num_polls > num_polls + 1)  # it does not wait for requests as it did before
    with Solver("e", "t", names=names) as solver:
        for call in [solver.submit("w", "work") for _ in range(3)]:
            call.result()
    assert seen == [False, True, True]
    assert [beat.has_worked for beat in beats] == [True]


def test_beats_keep_coming_while_the_loop_is_busy(host: Any) -> None:
    worker = host(Gate)
    beats: list[Beat] = []
    heartbeat = Heartbeat(beats.append)
    heartbeat.start()
    heartbeat.attach(worker)
    worker.is_shut = True
    assert worker.entered.wait(60)
    num = len(beats)
    wait_until(lambda: len(beats) >= num + 4)
    assert beats[-1].doing == "poll"
    worker.opened.set()
    heartbeat.close()


def test_a_worker_whose_name_was_taken_over_leaves(
    names: core.Names, host: Any, request: pytest.FixtureRequest
) -> None:
    """It was stopped for so long that another has been started in its place, and goes on only now."""
    first = host(Gate)
    others = discovery.connect(f"memory://{request.node.name}")
    second = WorkerServer("w/0", experiment="e", trial="t", names=others)
    with contextlib.closing(others), second:
        wait_until(lambda: first.status is core.WorkerStatus.EXITED)
        assert "another process has its name" in first.exit_reason
        assert names.get("e/t/worker/w/0") == second.address
