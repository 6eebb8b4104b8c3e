from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ludus import errors, launch
from ludus.cli.main import main
from ludus.program import Program, RestartPolicy
from ludus.workers.register import register
from ludus.workers.worker import Worker


class Counter(Worker):
    idle_s = 0.01

    def _configure(self, config: Any) -> None:
        self.step = config.get("step", 1)
        if not isinstance(self.step, int):
            raise TypeError("step is a whole number")

    def _poll(self) -> int:
        return 0

    def _stats(self) -> dict[str, Any]:
        return {"step": self.step}


class Hasty(Worker):
    """Goes without a word when it is asked to."""

    def _poll(self) -> int:
        return 0

    def request_exit(self, reason: str = "") -> None:
        os._exit(0)


class Busy(Worker):
    """In a long update, as a trainer may be, until its end is asked for."""

    idle_s = 0.01
    may_end = threading.Event()

    def _poll(self) -> int:
        self.may_end.wait(120.0)
        return 1


class Echo:
    @register
    def echo(self, value: int) -> int:
        return value


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with a live trial `monday`, whose workers are processes, and `sunday`, which has ended."""
    folder = tmp_path_factory.mktemp("trials")
    program = Program("ctl")
    program.add("counter", Counter, replicas=2)
    program.add("echo", Echo)
    launch.local(program, project=folder, trial="sunday", threads=True).stop()
    with launch.local(program, project=folder, trial="monday") as run:
        panel = run.panel()
        while len(panel.auto_connect()) < 3:
            time.sleep(0.02)
        yield folder


@pytest.fixture
def ctl(project: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["ctl", *words, "--project", str(project)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def rows(out: str) -> dict[str, list[str]]:
    """The table's rows, by worker."""
    lines = [line.split() for line in out.splitlines()]
    return {line[0]: line[1:] for line in lines if line and "/" in line[0]}


def test_list_has_a_row_for_every_worker(ctl: Any) -> None:
    code, out, _ = ctl("monday", "list")
    assert code == 0
    assert sorted(rows(out)) == ["counter/0", "counter/1", "echo/0"]
    deadline = time.monotonic() + 60.0
    while rows(out)["echo/0"][0] != "running" and time.monotonic() < deadline:
        time.sleep(0.1)  # still busy starting, where the machine is busy with other work
        _, out, _ = ctl("monday", "list")
    assert rows(out)["echo/0"][0] == "running"


def test_a_trial_can_be_given_by_its_path(ctl: Any, project: Path) -> None:
    assert ctl(str(project / "monday"), "ping")[0] == 0


def test_a_regex_chooses_workers(ctl: Any) -> None:
    code, out, _ = ctl("monday", "ping", "--workers", "counter/.*")
    assert code == 0
    assert sorted(rows(out)) == ["counter/0", "counter/1"]


def test_a_worker_is_paused_and_resumed(ctl: Any) -> None:
    assert ctl("monday", "pause", "--workers", "counter/1")[0] == 0
    shown = rows(ctl("monday", "list")[1])
    assert (shown["counter/0"][0], shown["counter/1"][0]) == ("running", "paused")
    assert ctl("monday", "resume")[0] == 0
    assert rows(ctl("monday", "list")[1])["counter/1"][0] == "running"


def test_a_worker_is_restarted(ctl: Any) -> None:
    before = rows(ctl("monday", "list")[1])["counter/0"]
    assert ctl("monday", "restart", "--workers", "counter/0")[0] == 0
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        now = rows(ctl("monday", "list")[1])["counter/0"]
        if now[0] == "running" and now[1] != before[1]:
            return
        time.sleep(0.1)
    raise AssertionError(f"{before} is still {now}")


def test_settings_are_changed(ctl: Any) -> None:
    assert ctl("monday", "reconfigure", "--workers", "counter/0", "--set", "step=5")[0] == 0
    shown = rows(ctl("monday", "stats")[1])
    assert "step=5" in shown["counter/0"]
    assert "step=1" in shown["counter/1"]


def test_a_worker_that_refuses_makes_the_command_fail_and_is_shown(ctl: Any) -> None:
    code, out, _ = ctl("monday", "reconfigure", "--workers", "counter/0", "--set", "step=fast")
    assert code == 1
    assert "TypeError: step is a whole number" in out


def test_only_reconfigure_takes_settings_and_it_needs_them(ctl: Any) -> None:
    assert ctl("monday", "ping", "--set", "step=1")[0] == 2
    assert ctl("monday", "reconfigure")[0] == 2
    assert ctl("monday", "reconfigure", "--set", "step")[0] == 2


def test_a_misspelt_trial_is_answered_with_the_nearest(ctl: Any) -> None:
    code, _, err = ctl("mondey", "list")
    assert code == 2
    assert "Did you mean 'monday'" in err


def test_a_misspelt_command_is_answered_with_the_nearest(ctl: Any) -> None:
    code, _, err = ctl("monday", "lsit")
    assert code == 2
    assert "Did you mean 'list'" in err


def test_a_regex_that_matches_nothing_or_is_none_is_an_error(ctl: Any) -> None:
    code, _, err = ctl("monday", "ping", "--workers", "counter")
    assert code == 2
    assert "There are: counter/0, counter/1, echo/0" in err
    code, _, err = ctl("monday", "ping", "--workers", "(")
    assert code == 2
    assert "not a regular expression" in err


def test_a_trial_that_has_ended_says_so(ctl: Any) -> None:
    code, _, err = ctl("sunday", "list")
    assert code == 2
    assert "'sunday' is not running: stopped" in err


def test_a_worker_that_was_asked_to_exit_is_listed_as_gone(ctl: Any) -> None:
    assert ctl("monday", "exit", "--workers", "echo/0")[0] == 0
    deadline = time.monotonic() + 60.0
    while rows(ctl("monday", "list")[1])["echo/0"] != ["not", "there"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    code, out, _ = ctl("monday", "list")
    assert code == 0
    assert rows(out)["counter/0"][0] == "running"


def test_a_worker_that_went_before_it_could_answer_did_what_was_asked(tmp_path: Path) -> None:
    program = Program("ctl")
    program.add("hasty", Hasty, restarts=RestartPolicy(max_restarts=0))
    with (
        pytest.raises(errors.ProgramError, match="without a word"),  # what the run makes of it
        launch.local(program, project=tmp_path, trial="tuesday") as run,
    ):
        while not run.panel().auto_connect():
            time.sleep(0.02)
        assert main(["ctl", "tuesday", "exit", "--project", str(tmp_path)]) == 0


def test_a_busy_worker_is_shown_as_busy_and_has_not_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = Program("ctl")
    program.add("busy", Busy)
    with (
        launch.local(program, project=tmp_path, trial="monday", threads=True) as run,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(Busy.may_end.set)
        until = time.monotonic() + 60
        while run.workers()[0].busy_s < 0.6:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert main(["ctl", "monday", "list", "--project", str(tmp_path)]) == 0
        assert "busy: poll" in capsys.readouterr().out
        main(["ctl", "monday", "pause", "--project", str(tmp_path), "--timeout", "0.3"])
        out = capsys.readouterr().out
        assert "busy: poll" in out
        assert "may still be carried out" in out
