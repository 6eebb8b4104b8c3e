"""What becomes of the workers when their driver, a process of its own here, is interrupted or killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import is_alive, members, wait_until

HERE = Path(__file__).parent


@contextlib.contextmanager
def driver(which: str, project: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A driver that runs a staged program, and the process ids of its workers."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "staged.py"), which, str(project)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, [int(pid) for pid in process.stdout.readline().split() if pid != "None"]
        finally:
            process.kill()


@pytest.mark.chaos
def test_no_worker_outlives_a_killed_driver_for_long(project: Path) -> None:
    with driver("deaf", project) as (process, pids):
        assert len(pids) == 6
        family = [pid for leader in pids for pid in members(leader)]
        assert len(family) == 7  # one worker has a child
        process.kill()
        wait_until(lambda: not any(is_alive(pid) for pid in family), timeout_s=30.0)  # three, if it is not busy
    assert "the driver is gone" in (project / "staged" / "logs" / "spin-0.log").read_text()


@pytest.mark.chaos
def test_a_worker_that_listens_ends_in_good_order_when_the_driver_is_killed(project: Path) -> None:
    with driver("polite", project) as (process, pids):
        process.kill()
        wait_until(lambda: not any(is_alive(pid) for pid in pids), timeout_s=30.0)
    assert (project / "polite-0").read_text() == "the driver is gone"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_a_signal_to_the_driver_drains(project: Path, number: signal.Signals, code: int) -> None:
    with driver("polite", project) as (process, pids):
        process.send_signal(number)
        assert process.wait(60) == code
        assert not any(is_alive(pid) for pid in pids)
    assert (project / "polite-0").read_text() == "SIGTERM"
    assert (project / "polite-1").read_text() == "SIGTERM"


def test_a_second_interrupt_kills_at_once(project: Path) -> None:
    with driver("stubborn", project) as (process, pids):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None, "it drains: the grace is 300 s"
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert not any(is_alive(pid) for pid in pids)


def test_ctrl_c_in_a_terminal_reaches_the_driver_only(project: Path) -> None:
    """A terminal sends it to the whole foreground process group; the workers are asked by their driver all the same."""
    with driver("polite", project) as (process, pids):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
        assert not any(is_alive(pid) for pid in pids)
    assert (project / "polite-0").read_text() == "SIGTERM"


def test_a_driver_that_ends_with_an_error_shows_what_its_worker_raised(project: Path) -> None:
    with driver("crashing", project) as (process, _):
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 1
    assert errors.count("crasher/0 crashed: ValueError: no reward for you") == 1  # at once
    assert "ProgramError: the run was ended because worker 'crasher/0' crashed 2 times" in errors
    assert 'raise ValueError("no reward for you")' in errors
