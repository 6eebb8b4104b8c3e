"""`ludus.init`: one drives, others join, the dead are succeeded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ludus
from ludus import errors
from ludus.program import folder as folders
from ludus.program.program import Program
from ludus.trial import current as trials
from ludus.workers.register import register
from trial.named.drivers import finish, is_alive, mentioning, read_line, start, wait_until

JOIN_AND_PUSH = """
import sys, ludus
trial = ludus.init(sys.argv[1], "t")
assert not trial.is_driver
assert ludus.init(sys.argv[1], "t") is trial
print(ludus.RemoteBuffer("b").push({"n": 1}, {"n": 2}, drop=False), flush=True)
for item in ludus.RemoteBuffer("other"):
    print("got", item["n"], flush=True)
print("ended", flush=True)
"""

DRIVE_OR_JOIN = """
import sys, ludus
trial = ludus.init(sys.argv[1], "t")
print(trial.is_driver, flush=True)
sys.stdin.readline()
trial.close()
"""

AGAIN_AND_AGAIN = """
import sys, ludus
trial = None
for line in sys.stdin:
    if trial is not None:
        trial.close()
    trial = ludus.init(sys.argv[1], line.strip())
    print(trial.is_driver, flush=True)
"""

TRAIN_FOR_EVER = """
import os, sys, threading, time
import ludus

def train(folder, is_deaf):
    open(f"{folder}/pid-{ludus.rank()}", "w").write(str(os.getpid()))
    while not ludus.should_stop() or is_deaf:
        time.sleep(0.01)
    open(f"{folder}/stopped", "w").close()

trial = ludus.init(sys.argv[1], "t")
ludus.RemoteTrainer(use_gpu=False).train(train=train, folder=sys.argv[1], is_deaf=len(sys.argv) > 2)
status = trial.remote("trainer").ping()["status"]
threading.Timer(0.5, lambda: print(status, flush=True)).start()  # by then it waits below
ludus.run_until_asked_to_stop()
print("ended", flush=True)
"""

ORPHAN = """
import sys, time, ludus
trial = ludus.init(sys.argv[1], "t")
buffer, other = ludus.RemoteBuffer("b"), ludus.RemoteBuffer("other")
print(buffer.push(1) and "joined", flush=True)
for _item in buffer:
    pass
print("ended")
began = time.monotonic()
try:
    other.push(1, timeout_s=1.5)
except ludus.errors.DeadlineExceeded:
    print(time.monotonic() - began < 35.0)
began = time.monotonic()
print(buffer.take(1, 1.0), time.monotonic() - began < 30.0, flush=True)
"""

FORK = """
import os, sys, time
import ludus

def refused(call):
    try:
        call()
    except ludus.errors.WorkerError as error:
        return f"forked from process {os.getppid()}" in str(error)

def train():
    while not ludus.should_stop():
        time.sleep(0.01)

trial = ludus.init(sys.argv[1], "t")
buffer = ludus.RemoteBuffer("b")
buffer.push(1)
ludus.merge("x", 1.0)
trainer = ludus.RemoteTrainer(use_gpu=False)
trainer.train(train=train)
child = os.fork()
if child == 0:
    import asyncio
    calls = [lambda: buffer.push(2), lambda: buffer.take(1), lambda: ludus.merge("x", 3.0), trainer.stop, trial.workers,
        lambda: ludus.RemoteBuffer("b"), lambda: asyncio.run(buffer.push_async(2)), ludus.run_until_asked_to_stop]
    print([refused(call) for call in calls], flush=True)
    trial.close()
    sys.exit(7)  # runs what is registered for the end of the process
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), trial.is_stopping, [str(worker.status) for worker in trainer.workers()])
print(buffer.take(5, 5.0), flush=True)
"""


class Echo:
    @register
    def echo(self, value: int) -> int:
        return value

    @register
    def where(self) -> str:
        return str(ludus.init("elsewhere").folder)  # a worker belongs to its trial, whatever it asks for


def echoes(name: str) -> Program:
    program = Program(trials.EXPERIMENT)
    program.add(name, Echo)
    return program


def saved(folder: Path) -> dict[str, object]:
    report: dict[str, object] = json.loads((folder / "trial.json").read_text())
    return report


def test_the_first_process_drives_and_asking_again_is_the_same_trial(tmp_path: Path) -> None:
    with ludus.init(tmp_path, "t") as trial:
        assert trial.is_driver
        assert trial.folder == tmp_path / "t"
        assert ludus.init(tmp_path, "t") is trial
        assert trials.current() is trial
        assert saved(trial.folder)["driver_pid"] == os.getpid()
        with pytest.raises(errors.WorkerError, match="one at a time"):
            ludus.init(tmp_path, "other")
        assert trial.ask_driver("ping")["pid"] == os.getpid()
    assert saved(tmp_path / "t")["ended"] == "stopped"
    trial.close()
    with pytest.raises(errors.WorkerError, match="was closed"):
        trial.remote("driver")


def test_without_a_trial_the_message_says_what_to_call() -> None:
    with pytest.raises(errors.WorkerError, match=r"ludus\.init\(project, trial\) first"):
        trials.current()


@pytest.mark.parametrize(("trial", "engine"), [("a/b", "local"), ("t", "rai")])
def test_a_name_or_an_engine_that_cannot_be_is_refused(tmp_path: Path, trial: str, engine: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"cannot name|Did you mean 'ray'"):
        ludus.init(tmp_path, trial, engine=engine)


def test_workers_are_started_beside_each_other_and_found_by_their_names(trial: trials.Trial) -> None:
    first = trial.run(echoes("first"))
    trial.run(echoes("second"))
    assert trial.remote("first").echo(7) == 7
    assert trial.remote("second").where() == str(trial.folder)
    assert sorted(worker.name for worker in trial.workers()) == ["first/0", "second/0"]
    with pytest.raises(errors.ProgramError, match="workers named 'second' already"):
        trial.run(echoes("second"))
    with pytest.raises(errors.ProgramError, match="named 'ludus'"):
        trial.run(Program("mine"))
    first.stop()
    assert trial.remote("second").echo(8) == 8, "the other run goes on"
    assert saved(trial.folder)["ended"] is None
    trial.run(echoes("first"))
    assert trial.remote("first").echo(9) == 9, "and the name is free again"
    workers = folders.TrialFolder(trial.folder).load_worker_names()
    assert workers == ["driver/0", "first/0", "second/0"]


def test_another_process_joins_and_pushes_and_is_notified_of_the_end(trial: trials.Trial, tmp_path: Path) -> None:
    buffer, other = ludus.RemoteBuffer("b"), ludus.RemoteBuffer("other")
    process = start(JOIN_AND_PUSH, tmp_path)
    assert read_line(process) == "2"
    assert [item["n"] for item in buffer.take(5, timeout_s=10.0)] == [1, 2]
    other.push({"n": 3})
    assert read_line(process) == "got 3"
    trial.close()
    out, _ = finish(process)
    assert out.strip() == "ended"


def test_of_two_that_begin_at_once_one_drives_and_one_joins(tmp_path: Path) -> None:
    both = [start(DRIVE_OR_JOIN, tmp_path) for _ in range(2)]
    assert sorted(read_line(process) for process in both) == ["False", "True"]
    for process in both:
        finish(process)


def test_of_those_that_begin_at_once_again_and_again_one_drives(tmp_path: Path) -> None:
    """New trials, and old ones that those who leave are just ending: never two drivers, never none."""
    processes = [start(AGAIN_AND_AGAIN, tmp_path) for _ in range(3)]
    for number in range(80):
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"t{number // 2}\n")
            process.stdin.flush()
        assert sorted(read_line(process) for process in processes) == ["False", "False", "True"]
    for process in processes:
        finish(process)
    assert mentioning(str(tmp_path)) == []


def test_without_join_a_trial_that_runs_is_refused(trial: trials.Trial, tmp_path: Path) -> None:
    code = "import sys; from ludus.trial import current; current.open(sys.argv[1], 't', join=False)"
    _, err = start(code, tmp_path).communicate(timeout=300)
    assert "'t' is running: another process drives it" in err


@pytest.mark.parametrize("how", ["train", "launch"])
def test_whatever_drives_it_there_is_one_lock(trial: trials.Trial, tmp_path: Path, how: str) -> None:
    """A trial of `ludus.init` whose trial.json was lost."""
    (trial.folder / "trial.json").unlink()
    with pytest.raises(errors.ProgramError, match="'t' is running: another process drives it"):
        if how == "train":
            ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="t")
        else:
            ludus.launch.local(echoes("echo"), project=tmp_path, trial="t")


@pytest.mark.chaos
def test_a_killed_driver_takes_its_workers_along_and_the_next_takes_the_trial_up(tmp_path: Path) -> None:
    driver = start(TRAIN_FOR_EVER, tmp_path)
    read_line(driver)
    wait_until(lambda: (tmp_path / "pid-0").exists() and (tmp_path / "pid-0").read_text())
    pid = int((tmp_path / "pid-0").read_text())
    assert is_alive(pid)
    driver.kill()
    driver.wait(60)
    wait_until(lambda: not mentioning(str(tmp_path)) and not is_alive(pid), timeout_s=60.0)
    (tmp_path / "t" / "version").write_text("12")
    with ludus.init(tmp_path, "t") as trial:
        assert trial.is_driver
        assert (trial.folder / "version").read_text() == "12"
        assert ludus.RemoteBuffer("b").push(1) == 1
    assert driver.communicate(timeout=300)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "ctl"])
def test_a_driver_that_is_asked_to_stop_asks_its_trainers_and_ends_well(tmp_path: Path, how: str) -> None:
    driver = start(TRAIN_FOR_EVER, tmp_path)
    read_line(driver)
    wait_until(lambda: (tmp_path / "pid-0").exists())
    if how == "ctl":
        code = "import sys; from ludus.cli.main import entry; sys.exit(entry())"
        asked = [sys.executable, "-c", code, "ctl", str(tmp_path / "t"), "exit", "--workers", "driver/0"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        driver.send_signal(signal.Signals[how])
    out, _ = finish(driver)
    assert out.strip() == "ended"
    assert (tmp_path / "stopped").exists(), "train() saw that it should stop, and came back"
    assert saved(tmp_path / "t")["ended"] in ("terminated", "interrupted", "asked to exit")
    assert mentioning(str(tmp_path)) == []


def test_a_second_ctrl_c_kills_at_once_what_does_not_listen(tmp_path: Path) -> None:
    driver = start(TRAIN_FOR_EVER, tmp_path, "deaf")
    read_line(driver)
    driver.send_signal(signal.SIGINT)
    assert driver.stderr is not None
    assert any("a second Ctrl-C kills them at once" in line for line in driver.stderr)
    driver.send_signal(signal.SIGINT)
    finish(driver)
    assert not (tmp_path / "stopped").exists()
    assert mentioning(str(tmp_path)) == []


def test_a_trial_whose_drivers_number_is_somebody_elses_now_is_taken_up(tmp_path: Path) -> None:
    with ludus.init(tmp_path, "t"):
        before = saved(tmp_path / "t")
    (tmp_path / "t" / "trial.json").write_text(json.dumps({**before, "ended": None, "driver_pid": os.getppid()}))
    with ludus.init(tmp_path, "t") as trial:
        assert trial.is_driver


@pytest.mark.parametrize("damage", ["empty", "gone", "ended"])
def test_nobody_else_drives_while_a_driver_runs_whatever_became_of_its_file(tmp_path: Path, damage: str) -> None:
    with ludus.init(tmp_path, "t"):
        file = tmp_path / "t" / "trial.json"
        if damage == "empty":
            file.write_text("")
        elif damage == "gone":
            file.unlink()
        else:
            file.write_text(json.dumps({**saved(tmp_path / "t"), "ended": "stopped"}))
        other = start("import sys, ludus; print(ludus.init(sys.argv[1], 't').is_driver)", tmp_path)
        out, err = other.communicate(timeout=300)
        assert out == ""
        assert "another process drives it" in err
    with ludus.init(tmp_path, "t") as trial:
        assert trial.is_driver


def test_a_running_trial_of_another_kind_is_not_joined(tmp_path: Path) -> None:
    with ludus.init(tmp_path, "t"):
        before = saved(tmp_path / "t")
    parent = os.getppid()
    other = {**before, "ended": None, "experiment": "train"}
    other |= {"driver_pid": parent, "driver_start": folders.process_start(parent)}
    (tmp_path / "t" / "trial.json").write_text(json.dumps(other))
    with pytest.raises(errors.ProgramError, match=r"cannot be joined: process \d+ on .* drives it"):
        ludus.init(tmp_path, "t")


def test_a_joined_process_cannot_start_workers_and_learns_who_can(trial: trials.Trial, tmp_path: Path) -> None:
    code = "import sys, ludus; ludus.RemoteTrainer; t = ludus.init(sys.argv[1], 't'); print(t.workers())"
    process = start(code, tmp_path)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert f"process {os.getpid()}" in err
    assert "Do it there" in err


def test_a_process_can_have_its_trial_from_the_environment(trial: trials.Trial) -> None:
    known = saved(trial.folder)
    variables = {"EXPERIMENT": trials.EXPERIMENT, "TRIAL": "t", "NAMES": known["names_url"], "FOLDER": trial.folder}
    code = "import ludus; ludus.RemoteBuffer('b').push({'n': 1}); ludus.merge('from', 2.0); print(ludus.init().folder)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **{f"LUDUS_{key}": str(value) for key, value in variables.items()}},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(trial.folder)
    assert ludus.RemoteBuffer("b").take(1, timeout_s=5.0) == [{"n": 1}]
    trial.close()
    assert '"from": 2.0' in (trial.folder / "metrics.jsonl").read_text(), "sent at its exit"


def test_the_driver_can_be_asked_to_stop_from_anywhere(trial: trials.Trial) -> None:
    trial.ask_driver("stop", "enough")
    ludus.run_until_asked_to_stop(timeout_s=30.0)
    assert saved(trial.folder)["ended"] == "enough"


def test_its_time_can_be_limited(trial: trials.Trial) -> None:
    ludus.run_until_asked_to_stop(timeout_s=0.2)
    assert saved(trial.folder)["ended"] == "its time is over"


def test_a_forked_child_has_no_trial_and_its_end_is_not_the_trials(tmp_path: Path) -> None:
    process = start(FORK, tmp_path)
    out, _ = finish(process)
    result = out.splitlines()
    assert result[0] == str([True] * 8), "each says in one sentence why it cannot be used"
    assert result[1].startswith("7 False ['")
    assert "failed" not in result[1]
    assert result[2] == "[1]"
    lines = (tmp_path / "t" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["x"] for line in lines] == [1.0], "sent by the parent, once"
    assert mentioning(str(tmp_path)) == []


def test_what_goes_wrong_at_the_end_keeps_nothing_from_being_ended_and_is_reported(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("this callback has a fault")

    trial = ludus.init(tmp_path, "t")
    run, called = trial.run(echoes("echo")), []
    assert trial.remote("echo").echo(1) == 1
    trial.before_close(lambda: called.append("first"))
    trial.before_close(fail)
    trial.before_close(lambda: called.append("last"))
    with pytest.raises(RuntimeError, match="has a fault"):
        trial.close()
    assert called == ["first", "last"]
    assert run.is_over
    assert saved(tmp_path / "t")["ended"] == "stopped"
    assert mentioning(str(tmp_path)) == []
    with ludus.init(tmp_path, "t") as again:
        assert again.is_driver


@pytest.mark.chaos
def test_a_joined_process_whose_driver_is_killed_waits_no_longer_than_it_said(tmp_path: Path) -> None:
    driver = start(DRIVE_OR_JOIN, tmp_path)
    assert read_line(driver) == "True"
    joined = start(ORPHAN, tmp_path)
    assert read_line(joined) == "joined"
    driver.kill()
    driver.wait(60)
    out, _ = finish(joined)
    ended, pushed, taken = out.splitlines()
    assert ended == "ended", "the loop over a buffer, not by an error"
    assert pushed == "True"
    assert taken == "[] True"
    assert driver.communicate(timeout=300)


def test_what_is_to_be_done_before_the_end_is_done_at_once_when_that_is_under_way(tmp_path: Path) -> None:
    done: list[str] = []
    with ludus.init(tmp_path, "t") as trial:
        trial.before_close(lambda: trial.before_close(lambda: done.append("late")))
    assert done == ["late"]
