"""The trainer as a worker: turns, calls between them, and what is kept at each kind of end."""

from __future__ import annotations

import threading

import pytest

from ludus.clock import FakeClock
from ludus.core import WorkerStatus
from ludus.discovery.memory import MemoryNames
from ludus.services.trainer.service import TrainerService
from ludus.workers.heartbeat import Heartbeat, decode_beat, encode_beat
from ludus.workers.server import WorkerServer
from ludus.workers.solver import Solver


class NotingJob:
    """Is done after so many turns, or never, or raises in the second; notes what is asked of it."""

    def __init__(self, num_turns: int | None = None, error: Exception | None = None) -> None:
        self.log: list[str] = []
        self.turned = threading.Event()
        self.is_stopped = False
        self._num_turns = num_turns
        self._error = error
        self._is_asked = False

    @property
    def is_done(self) -> bool:
        return self._num_turns == 0

    def turn(self) -> bool:
        self.turned.set()
        if self._error is not None and self.log:
            raise self._error
        if self._num_turns is not None:
            self._num_turns -= 1
        self.is_stopped = self._is_asked
        self.log.append("turn")
        return True

    def finish(self) -> None:
        self.log.append("finish")

    def ask_stop(self) -> None:
        self._is_asked = True

    def stop(self) -> None:
        self.log.append("stop")

    @property
    def shown(self) -> tuple[int, dict[str, float]]:
        return len(self.log), {}

    @property
    def doing(self) -> str:
        return "turn"

    def close(self) -> None:
        self.log.append("close")


class SlowJob(NotingJob):
    """In an update that does not end before it is let go on."""

    def __init__(self) -> None:
        super().__init__(num_turns=1)
        self.go_on = threading.Event()

    def turn(self) -> bool:
        self.turned.set()
        assert self.go_on.wait(60)
        return super().turn()

    @property
    def shown(self) -> tuple[int, dict[str, float]]:
        return 128, {"episode/return": 7.5, "train/loss": float("nan")}

    @property
    def doing(self) -> str:
        return "update"


def make_worker(job: NotingJob, names: MemoryNames | None = None) -> TrainerService:
    server = WorkerServer("trainer/0", experiment="e", trial="t", names=names or MemoryNames())
    return TrainerService(server, lambda _server: job)


def test_it_turns_until_the_job_is_done_and_then_finishes_it() -> None:
    job = NotingJob(num_turns=3)
    worker = make_worker(job)
    worker.run()
    assert worker.status is WorkerStatus.DONE
    assert job.log == ["turn", "turn", "turn", "finish", "close"]


def test_an_error_in_a_turn_keeps_nothing_of_it() -> None:
    """Half a turn, or weights that have diverged, must not take the place of the last valid checkpoint."""
    job = NotingJob(error=RuntimeError("it diverged"))
    worker = make_worker(job)
    with pytest.raises(RuntimeError, match="diverged"):
        worker.run()
    assert job.log == ["turn", "close"]


@pytest.mark.parametrize("how", ["exit", "stop"])
def test_asked_from_outside_it_ends_after_its_turn(how: str) -> None:
    names, job = MemoryNames(), NotingJob()
    worker = make_worker(job, names)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    with Solver("e", "t", names=names) as solver:
        assert job.turned.wait(10)
        assert 1 <= solver.retrieve("trainer/0", "progress")["step"] <= len(job.log)  # it is updated after the turn
        solver.retrieve("trainer/0", how)
    thread.join(10)
    assert not thread.is_alive()
    assert worker.status is WorkerStatus.EXITED
    # one that stops by itself has kept what it needs; one that is made to leave is asked to
    assert job.log[-2:] == (["turn", "close"] if how == "stop" else ["stop", "close"])


def test_an_interrupt_keeps_nothing() -> None:
    names, job = MemoryNames(), NotingJob()
    worker = make_worker(job, names)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    with Solver("e", "t", names=names) as solver:
        assert job.turned.wait(10)
        solver.retrieve("trainer/0", "interrupt")
    thread.join(10)
    assert set(job.log) == {"turn"}


def test_a_slow_update_is_seen_by_the_heartbeat_while_no_call_is_answered() -> None:
    job, clock = SlowJob(), FakeClock(0.0)
    worker = make_worker(job)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    assert job.turned.wait(60)
    heartbeat = Heartbeat(lambda beat: None, clock=clock)
    heartbeat.attach(worker)
    heartbeat.look()
    clock.advance(4.1)
    beat = decode_beat(encode_beat(heartbeat.look()).strip())
    assert beat.describe() == "busy: update, 4.1 s"
    assert beat.report == {"step": 128.0, "episode/return": 7.5}
    job.go_on.set()
    thread.join(60)
    assert worker.status is WorkerStatus.DONE
