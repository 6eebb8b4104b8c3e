from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus import clock, core, errors
from ludus.experiment.config import resolve
from ludus.launch.supervisor import End, Event, EventKind, Phase, Supervisor
from ludus.launch.vitals import LOOK_EVERY_S, Vitals
from ludus.program import RestartPolicy
from ludus.program.program import Node
from ludus.trial import services
from ludus.workers.heartbeat import Beat

CRASH = End(
    status=core.WorkerStatus.FAILED,
    reason="exit code 1",
    traceback="Traceback …\nValueError: bad reward",
    last_lines=("the last line",),
)
KILLED = End(status=core.WorkerStatus.FAILED, reason="killed by SIGKILL", is_external=True)
DONE = End(status=core.WorkerStatus.DONE, reason="finished")
EXITED = End(status=core.WorkerStatus.EXITED, reason="asked")


class Service:
    pass


class Task:
    def run(self) -> None: ...


class FakeIncarnation:
    def __init__(self, pid: int, ended: Callable[[End], None], calls: list[str], name: str) -> None:
        self.pid = pid
        self.host = "here"
        self.end = ended
        self._calls = calls
        self._name = name
        self.seen: Vitals | None = None

    def vitals(self) -> Vitals | None:
        return self.seen

    def ask_exit(self) -> None:
        self._calls.append(f"ask {self._name}")

    def kill(self) -> None:
        self._calls.append(f"kill {self._name}")


class Stage:
    """A supervisor on a hand-wound clock, and the workers it has started."""

    def __init__(self, *nodes: Node) -> None:
        self.clock = clock.FakeClock(100.0)
        self.events: list[Event] = []
        self.calls: list[str] = []
        self.up: dict[str, FakeIncarnation] = {}
        self.num_starts = 0
        self.refuse: str | OSError | None = None
        self.supervisor = Supervisor(nodes, self.start, on_event=self.events.append, clock=self.clock)

    def start(self, worker: str, ended: Callable[[End], None]) -> FakeIncarnation:
        if self.refuse:
            raise self.refuse if isinstance(self.refuse, OSError) else OSError(self.refuse)
        self.num_starts += 1
        self.up[worker] = FakeIncarnation(self.num_starts, ended, self.calls, worker)
        return self.up[worker]

    def step(self, advance_s: float = 0.0) -> float | None:
        self.clock.advance(advance_s)
        return self.supervisor.step()

    def up_all(self, seen: Vitals) -> None:
        """Start all, and show the same of each."""
        self.step()
        for incarnation in self.up.values():
            incarnation.seen = seen
        self.step()

    def phases(self) -> dict[str, Phase]:
        return {record.name: record.status for record in self.supervisor.records()}


def task(name: str = "task", *, replicas: int = 1, **policy: float | None) -> Node:
    return Node(name=name, cls=Task, replicas=replicas, restarts=RestartPolicy(**policy))  # type: ignore[arg-type]


def service(name: str = "service", *, replicas: int = 1, **policy: float | None) -> Node:
    return Node(name=name, cls=Service, replicas=replicas, restarts=RestartPolicy(**policy))  # type: ignore[arg-type]


def beating(number: int, *, has_worked: bool = True, **others: Any) -> Vitals:
    beat = Beat(number=number, status=core.WorkerStatus.RUNNING, has_worked=has_worked)
    return Vitals(beat=beat, **{"cpu_s": 1.0, **others})


def test_every_replica_is_started_once() -> None:
    stage = Stage(task(replicas=2), service())
    assert stage.step() is None
    assert sorted(stage.up) == ["service/0", "task/0", "task/1"]
    stage.step(advance_s=1000)
    assert stage.num_starts == 3


def test_a_crashed_worker_comes_back_after_its_backoff() -> None:
    stage = Stage(task(backoff_s=0.5))
    stage.step()
    stage.up["task/0"].end(CRASH)
    assert stage.step() == pytest.approx(0.5)
    assert stage.phases() == {"task/0": Phase.WAITING}
    stage.step(advance_s=0.49)
    assert stage.num_starts == 1
    stage.step(advance_s=0.02)
    assert stage.num_starts == 2
    (record,) = stage.supervisor.records()
    assert (record.status, record.restarts, record.pid, record.last_end) == (Phase.RUNNING, 1, 2, CRASH)


def test_the_backoff_doubles_and_is_forgotten_after_the_window() -> None:
    stage = Stage(task(backoff_s=1.0, max_backoff_s=3.0, window_s=60.0))
    stage.step()
    delays = []
    for _ in range(3):
        stage.up["task/0"].end(CRASH)
        delays.append(stage.step())
        stage.step(advance_s=5.0)
    stage.step(advance_s=60.0)
    stage.up["task/0"].end(CRASH)
    delays.append(stage.step())
    assert delays == pytest.approx([1.0, 2.0, 3.0, 1.0])


def test_a_crash_is_reported_at_once_with_its_traceback_and_last_lines() -> None:
    stage = Stage(task())
    stage.step()
    stage.up["task/0"].end(CRASH)
    stage.step()
    (event,) = [event for event in stage.events if event.kind is EventKind.CRASHED]
    assert event.worker == "task/0"
    for text in ("exit code 1", "ValueError: bad reward", "the last line", "started again in 0.2 s"):
        assert text in event.text


def test_one_crash_too_many_ends_the_run_with_the_reason() -> None:
    stage = Stage(task(max_restarts=1, backoff_s=0.0), service())
    stage.step()
    stage.up["task/0"].end(CRASH)
    stage.step()
    stage.step()
    stage.up["task/0"].end(CRASH)
    stage.step()
    assert stage.calls == ["ask service/0"]
    stage.up["service/0"].end(EXITED)
    stage.step()
    assert stage.supervisor.ended.is_set()
    assert stage.supervisor.settled.is_set()
    text = str(stage.supervisor.failure)
    assert isinstance(stage.supervisor.failure, errors.ProgramError)
    for part in (
        "'task/0'",
        "2 times",
        "max_restarts=1",
        "exit code 1",
        "ValueError: bad reward",
        "the last line",
    ):
        assert part in text


def test_a_worker_that_cannot_be_started_counts_as_crashed() -> None:
    stage = Stage(task(max_restarts=0))
    stage.refuse = "no more processes"
    stage.step()
    stage.step()
    assert "no more processes" in str(stage.supervisor.failure)
    assert stage.supervisor.ended.is_set()


def test_work_is_settled_when_those_that_have_an_end_have_ended() -> None:
    stage = Stage(task(replicas=2), service())
    stage.step()
    stage.up["task/0"].end(DONE)
    stage.step()
    assert not stage.supervisor.settled.is_set()
    stage.up["task/1"].end(DONE)
    stage.step()
    assert stage.supervisor.settled.is_set()
    assert not stage.supervisor.ended.is_set()
    assert stage.phases()["service/0"] is Phase.RUNNING


def test_services_alone_are_never_settled_by_themselves() -> None:
    stage = Stage(service())
    stage.step(advance_s=1000)
    assert not stage.supervisor.settled.is_set()
    stage.up["service/0"].end(EXITED)
    stage.step()
    assert stage.supervisor.settled.is_set()
    assert stage.supervisor.failure is None


def test_draining_asks_callers_first_and_services_when_these_are_gone() -> None:
    stage = Stage(service(), task())
    stage.step()
    stage.supervisor.request_stop(grace_s=4.0, why="test")
    stage.step()
    assert stage.calls == ["ask task/0"]
    stage.up["task/0"].end(EXITED)
    stage.step()
    assert stage.calls == ["ask task/0", "ask service/0"]
    stage.up["service/0"].end(EXITED)
    stage.step()
    assert stage.supervisor.ended.is_set()


def test_services_are_asked_at_half_time_even_if_a_caller_lingers() -> None:
    stage = Stage(service(), task())
    stage.step()
    stage.supervisor.request_stop(grace_s=4.0, why="test")
    assert stage.step() == pytest.approx(2.0)
    stage.step(advance_s=2.0)
    assert stage.calls == ["ask task/0", "ask service/0"]


def test_what_is_left_after_the_grace_is_killed() -> None:
    stage = Stage(task(replicas=2))
    stage.step()
    stage.supervisor.request_stop(grace_s=4.0, why="test")
    stage.step()
    stage.up["task/0"].end(EXITED)
    stage.step(advance_s=4.0)
    assert stage.calls[-1] == "kill task/1"
    stage.up["task/1"].end(CRASH)
    stage.step()
    assert stage.supervisor.ended.is_set()
    assert stage.supervisor.failure is None


def test_a_second_stop_may_shorten_the_grace_but_not_lengthen_it() -> None:
    stage = Stage(task())
    stage.step()
    stage.supervisor.request_stop(grace_s=4.0, why="test")
    stage.step()
    stage.supervisor.request_stop(grace_s=100.0, why="test")
    assert stage.step() == pytest.approx(2.0)
    stage.supervisor.request_stop(grace_s=0.0, why="hurry")
    stage.step()
    assert stage.calls == ["ask task/0", "kill task/0"]


def test_a_worker_that_even_a_kill_does_not_end_cannot_hold_up_the_end() -> None:
    stage = Stage(task())
    stage.step()
    stage.supervisor.request_stop(grace_s=0.0, why="test")
    stage.step()
    stage.step(advance_s=5.0)
    assert stage.supervisor.ended.is_set()
    assert stage.phases() == {"task/0": Phase.FAILED}


def test_nothing_is_started_again_while_draining() -> None:
    stage = Stage(task("a", backoff_s=0.1), task("b"))
    stage.step()
    stage.up["a/0"].end(CRASH)
    stage.step()
    stage.supervisor.request_stop(grace_s=4.0, why="test")
    stage.up["b/0"].end(CRASH)
    stage.step(advance_s=1.0)
    assert stage.num_starts == 2
    assert stage.supervisor.ended.is_set()
    assert stage.phases() == {"a/0": Phase.EXITED, "b/0": Phase.FAILED}


def test_the_end_of_an_earlier_life_does_not_end_the_present_one() -> None:
    stage = Stage(task(backoff_s=0.0))
    stage.step()
    first = stage.up["task/0"]
    first.end(CRASH)
    stage.step()
    stage.step()
    first.end(CRASH)
    stage.step()
    assert stage.phases() == {"task/0": Phase.RUNNING}
    assert stage.num_starts == 2
    assert [event.kind for event in stage.events].count(EventKind.CRASHED) == 1


def test_a_callback_that_raises_does_not_stop_supervision() -> None:
    stage = Stage(task())

    def raise_it(event: Event) -> None:
        raise RuntimeError("in the callback")

    stage.supervisor._on_event = raise_it
    stage.step()
    stage.up["task/0"].end(DONE)
    stage.step()
    assert stage.supervisor.ended.is_set()


def watch(stage: Stage, worker: str, seconds: float, look: Callable[[int], Vitals]) -> float | None:
    """Let the supervisor look for so long; the seconds after which the worker was killed, if it was."""
    for number in range(1, int(seconds / LOOK_EVERY_S) + 1):
        stage.up[worker].seen = look(number)
        stage.step(advance_s=LOOK_EVERY_S)
        if f"kill {worker}" in stage.calls:
            return number * LOOK_EVERY_S
    return None


def test_a_stopped_worker_is_killed_within_three_seconds_and_started_again() -> None:
    stage = Stage(service(replicas=2))
    stage.up_all(beating(0))
    killed_after = watch(stage, "service/0", 10, lambda number: beating(0, is_stopped=True))
    assert killed_after is not None
    assert killed_after <= 3.0
    stage.up["service/0"].end(KILLED)
    stage.step()
    (event,) = [event for event in stage.events if event.kind is EventKind.CRASHED]
    assert "hung" in event.text
    assert "stopped" in event.text
    stage.step(advance_s=1.0)
    assert stage.num_starts == 3


def test_a_worker_that_is_stopped_for_a_moment_is_left_alone() -> None:
    stage = Stage(service())
    stage.up_all(beating(0))
    assert watch(stage, "service/0", 20, lambda number: beating(number, is_stopped=number % 4 != 0)) is None


def test_a_busy_worker_is_never_killed_for_it() -> None:
    """Beats come, or CPU time is used: a long update, an env's step of C code that holds the interpreter."""
    stage = Stage(service())
    stage.up_all(beating(0))
    assert watch(stage, "service/0", 120, lambda number: beating(number)) is None
    assert watch(stage, "service/0", 120, lambda number: beating(999, cpu_s=float(number))) is None


def test_a_worker_without_a_beat_that_does_nothing_is_killed() -> None:
    stage = Stage(service())
    stage.up_all(beating(0))
    killed_after = watch(stage, "service/0", 120, lambda number: beating(1))
    assert killed_after is not None
    assert 20.0 < killed_after <= 35.0


def test_a_supervisor_that_was_held_up_does_not_take_its_workers_for_hung() -> None:
    stage = Stage(service())
    stage.up_all(beating(0, is_stopped=True))
    stage.step(advance_s=600.0)  # the driver was stopped, and its worker with it, by Ctrl-Z for example
    assert stage.calls == []


def test_a_hung_worker_that_cannot_be_replaced_is_said_to_be_hung_and_ends_the_run_in_ten_seconds() -> None:
    stage = Stage(task(max_restarts=0))
    stage.up_all(beating(0))
    assert watch(stage, "task/0", 5, lambda number: beating(0, is_stopped=True)) is None
    (event,) = [event for event in stage.events if event.kind is EventKind.HUNG]
    assert "kill -CONT 1" in event.text
    assert watch(stage, "task/0", 5, lambda number: beating(0, is_stopped=True)) is not None
    stage.up["task/0"].end(KILLED)
    stage.step()
    assert "hung" in str(stage.supervisor.failure)


def test_a_worker_that_recovered_from_a_hang_has_all_its_time_again_in_the_next() -> None:
    stage = Stage(task(max_restarts=0))
    stage.up_all(beating(0))
    assert watch(stage, "task/0", 4, lambda number: beating(0, is_stopped=True)) is None
    assert watch(stage, "task/0", 25, lambda number: beating(number)) is None
    assert watch(stage, "task/0", 4, lambda number: beating(99, is_stopped=True)) is None
    assert [event.kind for event in stage.events].count(EventKind.HUNG) == 2


def crash_loop(stage: Stage, worker: str, end: End, *, num: int, has_worked: bool, every_s: float = 10.0) -> int:
    """Let a worker crash `num` times; after how many crashes the supervisor gave up on it, or 0."""
    for number in range(1, num + 1):
        stage.up[worker].seen = beating(number, has_worked=has_worked)
        stage.step()
        stage.up[worker].end(end)
        stage.step()
        if any(event.kind is EventKind.GAVE_UP for event in stage.events):
            return number
        stage.step(advance_s=every_s)
    return 0


def simulator_restarts(folder: Path, algorithm: str) -> RestartPolicy:
    """What `ludus train ALGORITHM CartPole-v1 --simulators 2` gives its simulators."""
    program, _ = services.training_program(resolve(algorithm, "CartPole-v1", {"simulators": 2}), folder, began=0.0)
    (node,) = [node for node in program.nodes if node.name == "simulator"]
    return node.restarts


def test_a_simulator_that_dies_after_its_first_segment_every_time_is_given_up_on(tmp_path: Path) -> None:
    stage = Stage(Node(name="simulator", cls=Task, restarts=simulator_restarts(tmp_path, "ppo")))
    stage.step()
    assert crash_loop(stage, "simulator/0", CRASH, num=100, has_worked=True, every_s=3.0) == 31
    text = str(stage.supervisor.failure)
    for part in ("31 times within 600 s", "max_restarts=30", "exit code 1", "ValueError: bad reward", "the last line"):
        assert part in text


def test_kills_from_outside_never_end_a_run_of_simulators(tmp_path: Path) -> None:
    stage = Stage(Node(name="simulator", cls=Task, restarts=simulator_restarts(tmp_path, "ppo")))
    stage.step()
    assert crash_loop(stage, "simulator/0", KILLED, num=100, has_worked=True, every_s=3.0) == 0
    assert crash_loop(stage, "simulator/0", CRASH, num=30, has_worked=True, every_s=3.0) == 0
    assert crash_loop(stage, "simulator/0", KILLED, num=20, has_worked=True, every_s=3.0) == 0
    assert stage.phases() == {"simulator/0": Phase.RUNNING}


def test_kills_of_all_simulators_do_not_end_a_run_that_lives_with_the_crashes_of_one(tmp_path: Path) -> None:
    stage = Stage(Node(name="simulator", cls=Task, replicas=2, restarts=simulator_restarts(tmp_path, "appo")))
    stage.up_all(beating(0))
    assert crash_loop(stage, "simulator/0", CRASH, num=40, has_worked=True, every_s=3.0) == 0
    for worker in ("simulator/1", "simulator/0"):
        stage.up[worker].end(KILLED)
    stage.step()
    stage.step(advance_s=3.0)
    assert stage.phases() == {"simulator/0": Phase.RUNNING, "simulator/1": Phase.RUNNING}


def test_simulators_that_all_die_again_and_again_do_not_excuse_each_other(tmp_path: Path) -> None:
    stage = Stage(Node(name="simulator", cls=Task, replicas=2, restarts=simulator_restarts(tmp_path, "appo")))
    stage.up_all(beating(0))
    for _ in range(100):  # each dies while the other runs
        for worker in ("simulator/0", "simulator/1"):
            if stage.phases()[worker] is Phase.RUNNING:
                stage.up[worker].seen = beating(1)
                stage.step()
                stage.up[worker].end(CRASH)
                stage.step()
                stage.step(advance_s=3.0)
    assert "max_restarts=30" in str(stage.supervisor.failure)
    assert sum(event.kind is EventKind.CRASHED for event in stage.events) < 70


def test_a_worker_that_never_gets_to_work_is_given_up_on_after_three_deaths(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(task(max_restarts=30, max_backoff_s=2.0), service())
    stage.step()
    assert crash_loop(stage, "task/0", CRASH, num=50, has_worked=False) == 3
    text = str(stage.supervisor.failure)
    for part in ("3 times before it did any work", "exit code 1", "ValueError: bad reward", "the last line"):
        assert part in text
    assert "Traceback" not in caplog.text  # it is in the error, once
    assert len(caplog.records) <= 4


def test_deaths_before_the_first_beat_count_as_deaths_before_any_work() -> None:
    stage = Stage(task(max_restarts=30, max_backoff_s=2.0))
    stage.step()
    for _ in range(3):
        stage.up["task/0"].seen = Vitals(beat=None, cpu_s=0.1)
        stage.up["task/0"].end(CRASH)
        stage.step()
        stage.step(advance_s=10.0)
    assert "3 times before it did any work" in str(stage.supervisor.failure)
    assert stage.num_starts == 3


def test_a_worker_whose_process_cannot_be_made_is_given_up_on_after_three_tries() -> None:
    stage = Stage(task(max_restarts=30))
    stage.refuse = "no such interpreter"
    for _ in range(10):
        stage.step(advance_s=10.0)
    assert "3 times before it did any work" in str(stage.supervisor.failure)
    assert "no such interpreter" in str(stage.supervisor.failure)


def test_a_machine_without_room_for_another_process_is_waited_for() -> None:
    stage = Stage(task(max_restarts=30, max_backoff_s=2.0))
    stage.refuse = OSError(errno.EAGAIN, "no more processes")
    for _ in range(10):
        stage.step(advance_s=10.0)
    stage.refuse = None
    stage.step(advance_s=10.0)
    assert stage.phases() == {"task/0": Phase.RUNNING}


@pytest.mark.parametrize("has_worked", [True, False])
def test_without_a_limit_a_worker_that_has_worked_is_never_given_up_on(has_worked: bool) -> None:
    """One payload that ends the process, sent again and again, at once or after some normal work."""
    stage = Stage(service(max_restarts=None, backoff_s=0.05, max_backoff_s=1.0))
    stage.step()
    assert crash_loop(stage, "service/0", CRASH, num=1, has_worked=True) == 0
    assert crash_loop(stage, "service/0", CRASH, num=100, has_worked=has_worked) == 0
    assert stage.phases() == {"service/0": Phase.RUNNING}


def test_without_a_limit_a_worker_that_never_gets_to_work_is_given_up_on() -> None:
    stage = Stage(service(max_restarts=None))
    stage.step()
    assert crash_loop(stage, "service/0", CRASH, num=10, has_worked=False) == 3


def test_what_replicas_die_of_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(task(replicas=3))
    stage.up_all(beating(0, has_worked=False))
    for worker in ("task/1", "task/2"):
        crash_loop(stage, worker, CRASH, num=2, has_worked=False)
    assert crash_loop(stage, "task/0", CRASH, num=3, has_worked=False) == 3
    stage.up["task/1"].end(CRASH)  # while the run stops
    stage.up["task/2"].end(CRASH)
    stage.step()
    assert stage.supervisor.ended.is_set()
    assert caplog.text.count("exit code 1") == 1
    assert "Traceback" not in caplog.text
    assert str(stage.supervisor.failure).count("Traceback") == 1


def test_one_that_got_to_work_once_may_use_up_its_restarts_even_if_they_are_slow() -> None:
    stage = Stage(task(max_restarts=30, max_backoff_s=2.0))
    stage.step()
    assert crash_loop(stage, "task/0", CRASH, num=2, has_worked=True) == 0
    assert crash_loop(stage, "task/0", CRASH, num=50, has_worked=False) == 31


@pytest.mark.parametrize("end", [CRASH, KILLED])
def test_a_worker_is_started_again_for_as_long_as_another_replica_serves(end: End) -> None:
    stage = Stage(service(replicas=2, max_restarts=2, backoff_s=0.1, max_backoff_s=1.0))
    stage.up_all(beating(0))
    stage.up["service/1"].seen = beating(1)
    assert crash_loop(stage, "service/0", end, num=40, has_worked=True) == 0
    assert stage.supervisor.failure is None


def test_kills_and_outages_do_not_count_as_deaths_of_a_worker_that_cannot_work() -> None:
    stage = Stage(task(max_restarts=30, max_backoff_s=2.0))
    stage.step()
    assert crash_loop(stage, "task/0", KILLED, num=20, has_worked=False) == 0


def test_from_the_third_death_of_an_outage_on_the_longest_backoff_is_waited_for() -> None:
    stage = Stage(task(max_restarts=30, backoff_s=0.1, max_backoff_s=20.0, window_s=600.0))
    stage.step()
    delays = []
    for _ in range(4):
        stage.up["task/0"].end(KILLED)
        delays.append(stage.step())
        stage.step(advance_s=20.0)
    assert delays == pytest.approx([0.1, 0.2, 20.0, 20.0])


def test_a_run_goes_on_without_an_expendable_worker_until_the_last_is_given_up_on() -> None:
    stage = Stage(service(replicas=2))
    stage.up_all(beating(0))
    stage.up["service/1"].seen = beating(1)
    assert crash_loop(stage, "service/0", CRASH, num=10, has_worked=False) == 3
    assert stage.supervisor.failure is None
    assert stage.phases() == {"service/0": Phase.FAILED, "service/1": Phase.RUNNING}
    stage.events.clear()
    assert crash_loop(stage, "service/1", CRASH, num=10, has_worked=False) == 3
    assert stage.supervisor.failure is not None


def test_replicas_that_all_die_before_any_work_are_no_hope_for_each_other() -> None:
    stage = Stage(service(replicas=2))
    stage.step()
    stage.up["service/1"].seen = beating(1, has_worked=False)
    stage.step()
    stage.up["service/1"].end(CRASH)
    assert crash_loop(stage, "service/0", CRASH, num=10, has_worked=False) == 3
    assert stage.supervisor.failure is not None


def test_crashes_that_are_alike_are_not_logged_in_full_again(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(task(replicas=2, max_restarts=30))
    stage.up_all(beating(0))
    for number in range(20):
        for worker in ("task/0", "task/1"):
            stage.up[worker].seen = beating(number)
            stage.step()
            stage.up[worker].end(CRASH)
            stage.step(advance_s=10.0)
            stage.step()
    assert caplog.text.count("Traceback") == 1
    assert "32 times so far" in caplog.text
    assert sum("crashed" in record.message for record in caplog.records) <= 8
    assert sum(event.kind is EventKind.CRASHED for event in stage.events) == 40


def test_a_worker_that_is_asked_to_restart_exits_and_is_started_again_at_once() -> None:
    stage = Stage(task("a", max_restarts=1))
    stage.step()
    for _ in range(3):  # more than its policy allows of crashes
        stage.supervisor.request_restart("a/0")
        stage.up["a/0"].end(EXITED)
        stage.step()
        stage.step()
        assert stage.phases() == {"a/0": Phase.RUNNING}
    assert stage.calls == ["ask a/0"] * 3
    assert stage.supervisor.records()[0].restarts == 3


def test_a_worker_that_does_not_leave_for_its_restart_is_killed() -> None:
    stage = Stage(task("a"))
    stage.step()
    stage.supervisor.request_restart("a/0")
    stage.step(4.9)
    assert stage.calls == ["ask a/0"]
    stage.step(0.2)
    assert stage.calls == ["ask a/0", "kill a/0"]
    stage.up["a/0"].end(KILLED)
    stage.step()
    stage.step()
    assert stage.phases() == {"a/0": Phase.RUNNING}


def test_a_worker_whose_end_ends_the_run_cannot_be_restarted() -> None:
    stage = Stage(task("a", max_restarts=0))
    stage.step()
    with pytest.raises(errors.ProgramError, match="max_restarts=0, so the run ends with it"):
        stage.supervisor.request_restart("a/0")
    with pytest.raises(errors.ProgramError, match="no worker 'b/0'"):
        stage.supervisor.request_restart("b/0")
    assert stage.calls == []


def test_a_restart_does_not_hold_up_the_end_of_a_run() -> None:
    stage = Stage(task("a"))
    stage.step()
    stage.supervisor.request_restart("a/0")
    stage.supervisor.request_stop(grace_s=5.0, why="asked")
    stage.up["a/0"].end(EXITED)
    stage.step()
    assert stage.phases() == {"a/0": Phase.EXITED}
    assert stage.supervisor.ended.is_set()
