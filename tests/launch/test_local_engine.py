from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import stat
import threading
import time
from pathlib import Path

import pytest
from processes import is_alive, members, wait_until
from staged import (
    Caller,
    Crasher,
    CrashesOnce,
    Deaf,
    DiskFull,
    Echo,
    Hangs,
    Parent,
    Polite,
    Refuses,
    Vanishes,
    Warner,
    crashing_program,
    echo_program,
    forever_program,
    polite_program,
)

from ludus import errors, launch
from ludus.launch import Event, EventKind, Phase, Run, child
from ludus.program import Program, RestartPolicy
from ludus.workers.solver import Solver

BOTH = pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])


def record(run: Run, worker: str) -> launch.WorkerRecord:
    (found,) = [record for record in run.workers() if record.name == worker]
    return found


def pid_of(run: Run, worker: str) -> int:
    wait_until(lambda: record(run, worker).pid)
    pid = record(run, worker).pid
    assert pid is not None
    return pid


# ---- a run that goes well


@BOTH
def test_a_handle_connects_two_workers(project: Path, threads: bool) -> None:
    out = project / "answers"
    with launch.local(echo_program(str(out)), project=project, threads=threads) as run:
        assert run.wait(60)
        assert {r.name: r.status for r in run.workers()} == {
            "echo/0": Phase.RUNNING,
            "echo/1": Phase.RUNNING,
            "caller/0": Phase.DONE,
        }
    assert ast.literal_eval(out.read_text()) == [0, 1, 2, 3, 4]
    assert {r.status for r in run.workers()} == {Phase.DONE, Phase.EXITED}


def test_a_worker_s_warnings_are_in_the_driver_s_log_once_and_its_result_in_its_end(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program("staged")
    program.add("warner", Warner)
    with launch.local(program, project=project) as run:
        assert run.wait(60)
        end = record(run, "warner/0").last_end
    assert end is not None
    assert end.result == {"score": 1.5}
    [result] = [message for message in caplog.messages if "it raised" in message]
    assert result.startswith("warner/0: it raised (seed 7, step 12) in process ")
    assert "not ours" not in caplog.text
    assert (run.trial_dir / "logs" / "warner-0.log").read_text().count("it raised") == 100


def test_a_worker_is_started_again_though_somebody_deleted_the_trial_s_folder(project: Path) -> None:
    program = Program("staged")
    echo = program.add("echo", Echo, restarts=RestartPolicy(backoff_s=0.1))
    with launch.local(program, project=project) as run:
        assert run.remote(echo).echo(1)["value"] == 1
        pid = pid_of(run, "echo/0")
        shutil.rmtree(run.trial_dir)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: record(run, "echo/0").pid not in (None, pid))
        assert run.remote(echo).echo(2)["value"] == 2


def test_a_line_that_was_started_is_completed_and_what_finds_no_room_is_dropped() -> None:
    there, here = os.pipe()
    pipe = child.PulsePipe(here)
    sent = [f"{number} ".encode() + b"x" * 10_000 + b"\n" for number in range(20)]
    for line in sent:
        pipe.send(line)
    got = os.read(there, 1 << 20)
    pipe.send(b"last\n")
    got += os.read(there, 1 << 20)
    os.close(there)
    os.close(here)
    lines = got.splitlines(keepends=True)
    assert 5 < len(lines) < 20
    assert lines[-1] == b"last\n"
    assert lines[:-1] == sent[: len(lines) - 1]


def test_each_replica_is_a_process_and_with_threads_none_is(project: Path) -> None:
    program = Program("staged")
    echo = program.add("echo", Echo, replicas=2)
    with launch.local(program, project=project) as run:
        wait_until(lambda: len(run.remote(echo).solver.replicas("echo")) == 2)
        assert len({pid_of(run, "echo/0"), pid_of(run, "echo/1"), os.getpid()}) == 3
    with launch.local(program, project=project, threads=True) as run:
        assert run.remote("echo").echo(1)["pid"] == os.getpid()


def test_classes_of_a_script_travel_with_their_code(project: Path) -> None:
    class Local:
        def __init__(self, path: str) -> None:
            self.path = path

        def run(self) -> None:
            Path(self.path).write_text("done")

    program = Program("staged")
    program.add("local", Local, str(project / "out"))
    with launch.local(program, project=project) as run:
        run.wait(60)
    assert (project / "out").read_text() == "done"


def test_the_trial_folder_tells_of_the_run(project: Path) -> None:
    with launch.local(echo_program(str(project / "out")), project=project, trial="monday") as run:
        run.wait(60)
        trial = json.loads((project / "monday" / "trial.json").read_text())
        assert trial["names_url"] == run.names_url
        assert (trial["experiment"], trial["trial"]) == ("staged", "monday") == (run.experiment, run.trial)
        assert (trial["driver_pid"], trial["ended"]) == (os.getpid(), None)
        spec = run.trial_dir / "workers" / "echo-0.spec"
        assert stat.S_IMODE(spec.stat().st_mode) == 0o600
    assert json.loads((run.trial_dir / "trial.json").read_text())["ended"] == "stopped"
    assert json.loads((run.trial_dir / "program.json").read_text())["edges"] == [["caller", "echo"]]
    assert "done: finished" in (run.trial_dir / "logs" / "caller-0.log").read_text()


def test_other_names_can_be_used(project: Path) -> None:
    program = echo_program(str(project / "out"))
    with launch.local(program, project=project, names_url=f"file://{project}/names") as run:
        assert run.wait(60)


def test_waiting_has_a_limit(project: Path) -> None:
    program = Program("staged")
    program.add("echo", Echo)
    with launch.local(program, project=project, threads=True) as run:
        assert run.wait(0.1) is False


def test_a_run_that_cannot_be_sent_to_its_workers_says_which_node(project: Path) -> None:
    program = Program("staged")
    program.add("caller", Caller, {"echo": threading.Lock()}, "out")
    with pytest.raises(errors.ProgramError, match="node 'caller' cannot be sent"):
        launch.local(program, project=project)


# ---- crashes


@BOTH
def test_a_crash_is_reported_with_its_traceback_and_the_worker_comes_back(project: Path, threads: bool) -> None:
    events: list[Event] = []
    program = Program("staged")
    program.add("once", CrashesOnce, str(project / "flag"), restarts=RestartPolicy(backoff_s=0.05))
    with launch.local(program, project=project, threads=threads, on_event=events.append) as run:
        assert run.wait(60)
        assert record(run, "once/0").restarts == 1
    kinds = [event.kind for event in events]
    assert kinds == [EventKind.STARTED, EventKind.CRASHED, EventKind.STARTED, EventKind.ENDED]
    assert 'raise ValueError("only this once")' in events[1].text
    assert "only this once" in (run.trial_dir / "logs" / "once-0.log").read_text()


def test_too_many_crashes_end_the_run_and_say_why(project: Path) -> None:
    with launch.local(crashing_program(max_restarts=1, backoff_s=0.05), project=project) as run:
        with pytest.raises(errors.ProgramError) as caught:
            run.wait(60)
        assert record(run, "echo/0").status is Phase.EXITED
    text = str(caught.value)
    for part in (
        "'crasher/0' crashed 2 times",
        'raise ValueError("no reward for you")',
        "ValueError: no reward for you",
        "just before the crash",
    ):
        assert part in text
    assert text.count("just before the crash") == 1  # of the last life only
    assert "crasher/0" in json.loads((run.trial_dir / "trial.json").read_text())["ended"]


def test_a_run_that_ended_badly_says_so_even_if_nobody_waits(project: Path) -> None:
    with (
        pytest.raises(errors.ProgramError, match="no reward for you"),
        launch.local(crashing_program(max_restarts=0), project=project) as run,
    ):
        wait_until(lambda: record(run, "crasher/0").status is Phase.FAILED)


def test_a_constructor_that_raises_is_a_crash(project: Path) -> None:
    program = Program("staged")
    program.add("refuses", Refuses, restarts=RestartPolicy(max_restarts=0))
    with (
        launch.local(program, project=project) as run,
        pytest.raises(errors.ProgramError, match=r"RuntimeError: no GPU here(.|\n)*in __init__"),
    ):
        run.wait(60)


def test_a_killed_worker_is_noticed_at_once_and_calls_go_on(project: Path) -> None:
    noticed: list[tuple[float, Event]] = []
    program, forever = forever_program(replicas=2, restarts=RestartPolicy(backoff_s=0.05))
    with launch.local(
        program, project=project, on_event=lambda event: noticed.append((time.monotonic(), event))
    ) as run:
        count = run.remote(forever).count
        wait_until(lambda: count() > 5)
        pid, killed_at = pid_of(run, "echo/0"), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: record(run, "echo/0").restarts == 1)
        before = count()
        wait_until(lambda: count() > before + 20)
        ((at, crash),) = [(at, event) for at, event in noticed if event.kind is EventKind.CRASHED]
    assert at - killed_at < 10.0
    assert "killed by SIGKILL" in crash.text


def test_a_stopped_worker_is_killed_and_replaced_and_calls_go_on(project: Path) -> None:
    noticed: list[tuple[float, Event]] = []
    program, forever = forever_program(replicas=2, restarts=RestartPolicy(backoff_s=0.05))
    with launch.local(
        program, project=project, on_event=lambda event: noticed.append((time.monotonic(), event))
    ) as run:
        count = run.remote(forever).count
        wait_until(lambda: count() > 5)
        pid, stopped_at = pid_of(run, "echo/0"), time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: record(run, "echo/0").restarts == 1)
        wait_until(lambda: not is_alive(pid))
        before = count()
        wait_until(lambda: count() > before + 20)
        ((at, crash),) = [(at, event) for at, event in noticed if event.kind is EventKind.CRASHED]
    assert at - stopped_at < 30.0  # three on a machine that is not busy; the supervisor's own test has the rule
    assert "hung: its process has been stopped" in crash.text


def test_a_loop_that_hangs_for_longer_than_it_may_is_replaced_and_its_stack_is_shown(project: Path) -> None:
    events: list[Event] = []
    program = Program("staged")
    program.add("hangs", Hangs, str(project / "flag"), restarts=RestartPolicy(max_busy_s=1.0, backoff_s=0.05))
    with launch.local(program, project=project, on_event=events.append) as run:
        assert run.wait(60)
        assert record(run, "hangs/0").restarts == 1
    (crash,) = [event for event in events if event.kind is EventKind.CRASHED]
    assert "hung: its loop was in 'poll'" in crash.text
    assert "threading.Event().wait()" in crash.text


def test_a_worker_that_vanishes_before_any_work_is_given_up_on_after_three_times(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program("staged")
    program.add("vanishes", Vanishes, restarts=RestartPolicy(max_restarts=30, backoff_s=0.05, max_backoff_s=0.1))
    with (
        launch.local(program, project=project) as run,
        pytest.raises(errors.ProgramError, match="3 times before it did any work") as caught,
    ):
        run.wait(60)
    assert "exit code 7" in str(caught.value)
    assert str(caught.value).count("about to vanish") == 1
    assert "about to vanish" not in caplog.text


def test_what_a_worker_has_started_ends_with_it(project: Path) -> None:
    program = Program("staged")
    program.add("parent", Parent, restarts=RestartPolicy(max_restarts=0))
    with launch.local(program, project=project) as run:
        group = pid_of(run, "parent/0")
        wait_until(lambda: len(members(group)) == 2)
        grandchild = next(pid for pid in members(group) if pid != group)
        run.stop()
        wait_until(lambda: not is_alive(grandchild), timeout_s=30.0)


# ---- ends


@BOTH
def test_leaving_the_block_lets_workers_go_in_good_order(project: Path, threads: bool) -> None:
    with launch.local(polite_program(str(project)), project=project, threads=threads) as run:
        panel = run.panel()
        wait_until(lambda: len(panel.auto_connect()) == 3)
    assert (project / "polite-0").exists()
    assert (project / "polite-1").exists()


def test_a_worker_that_does_not_listen_is_killed_after_the_grace(project: Path) -> None:
    program = Program("staged")
    program.add("sleep", Deaf, "sleep")
    with launch.local(program, project=project) as run:
        panel = run.panel()
        wait_until(panel.auto_connect)
        wait_until(lambda: not panel.group_request("ping", timeout=0.2)[0].ok)  # it has started not to listen
        pid, began = pid_of(run, "sleep/0"), time.monotonic()
        run.stop(grace_s=0.3)
        assert 0.3 <= time.monotonic() - began < 30.0
        assert not is_alive(pid)


def test_a_thread_that_does_not_listen_is_left_behind_after_the_grace(project: Path) -> None:
    program = Program("staged")
    program.add("sleep", Deaf, "sleep")
    with launch.local(program, project=project, threads=True) as run:
        panel = run.panel()
        wait_until(panel.auto_connect)
        began = time.monotonic()
        run.stop(grace_s=0.2)
        assert time.monotonic() - began < 30.0


def test_a_run_can_be_stopped_twice_and_from_its_own_events(project: Path) -> None:
    runs: list[Run] = []

    def stop_at_crash(event: Event) -> None:
        if event.kind is EventKind.CRASHED:
            runs[0].stop()

    program = Program("staged")
    program.add("crasher", Crasher, after_s=0.2)
    program.add("echo", Echo)
    with launch.local(program, project=project, threads=True, on_event=stop_at_crash) as run:
        runs.append(run)
        assert run.wait(60)
        run.stop()
        run.stop()
    assert [r.status for r in run.workers()] == [Phase.EXITED, Phase.EXITED]


def test_a_worker_asked_to_exit_by_the_panel_stays_away(project: Path) -> None:
    program = Program("staged")
    program.add("polite", Polite, str(project), replicas=2)
    with launch.local(program, project=project) as run:
        panel = run.panel()
        wait_until(lambda: len(panel.auto_connect()) == 2)
        panel.request("polite/0", "exit")
        wait_until(lambda: record(run, "polite/0").status is Phase.EXITED)
        panel.request("polite/1", "exit")
        assert run.wait(60)
        assert [r.restarts for r in run.workers()] == [0, 0]


def test_a_solver_needs_no_arguments_inside_a_worker(project: Path) -> None:
    class Asks:
        def __init__(self, path: str) -> None:
            self.path = path

        def run(self) -> None:
            Path(self.path).write_text(str(Solver().retrieve("echo", "echo", 7)["value"]))

    program = Program("staged")
    program.add("echo", Echo)
    program.add("asks", Asks, str(project / "out"))
    with launch.local(program, project=project) as run:
        assert run.wait(60)
    assert (project / "out").read_text() == "7"


def test_a_running_trial_is_not_started_twice(project: Path) -> None:
    program = Program("staged")
    program.add("echo", Echo)
    with (
        launch.local(program, project=project, trial="monday", threads=True),
        pytest.raises(errors.ProgramError, match="is running"),
    ):
        launch.local(program, project=project, trial="monday", threads=True)
    launch.local(program, project=project, trial="monday", threads=True).stop()


def test_a_trial_whose_driver_has_not_yet_written_its_file_is_not_started_twice(project: Path) -> None:
    """Both have looked for `trial.json` and found none: the lock decides."""
    with launch.local(echo_program(str(project / "out")), project=project, trial="one", threads=True) as run:
        (run.trial_dir / "trial.json").rename(project / "aside")
        with pytest.raises(errors.ProgramError, match="another process drives it"):
            launch.local(echo_program(str(project / "out")), project=project, trial="one", threads=True)
        (project / "aside").rename(run.trial_dir / "trial.json")
    launch.local(echo_program(str(project / "out")), project=project, trial="one", threads=True).stop()


def test_workers_that_die_before_their_first_beat_are_given_up_on(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "broken").mkdir()
    (project / "broken" / "cloudpickle.py").write_text("raise ImportError('this module is broken')")
    monkeypatch.setenv("PYTHONPATH", str(project / "broken"))
    program = Program("staged")
    program.add("echo", Echo, restarts=RestartPolicy(max_restarts=None, backoff_s=0.01))
    with (
        pytest.raises(errors.ProgramError, match="3 times before it did any work") as failure,
        launch.local(program, project=project) as run,
    ):
        run.wait(60)
    assert str(failure.value).count("ImportError: this module is broken") == 1


def test_a_worker_that_fails_on_a_full_disk_still_says_why(project: Path) -> None:
    program = Program("staged")
    program.add("full", DiskFull, restarts=RestartPolicy(max_restarts=0))
    with (
        launch.local(program, project=project) as run,
        pytest.raises(errors.ProgramError, match=r"File too large(.|\n)*in _poll"),
    ):
        run.wait(60)
