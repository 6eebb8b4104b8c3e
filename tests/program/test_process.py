"""How a process ends when nothing is to be unloaded."""

import os
import subprocess
import sys

import pytest

START = "import atexit, logging, sys, threading, time; from ludus.program.process import exit_at_once\n"


@pytest.mark.parametrize("code", [0, 3])
def test_what_was_registered_for_the_exit_runs_and_streams_are_flushed(code: int) -> None:
    script = START + f"atexit.register(print, 'goodbye')\nprint('hello', end='; ')\nexit_at_once({code})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (code, "hello; goodbye\n")


def test_a_thread_that_still_runs_does_not_hold_it_up() -> None:
    script = START + "threading.Thread(target=time.sleep, args=(3600,)).start()\nexit_at_once(0)"
    assert subprocess.run([sys.executable, "-c", script], timeout=300, check=False).returncode == 0


def test_what_cannot_be_said_any_more_shows_in_the_code() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-c", START + "print('hello')\nexit_at_once(0)"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(words, stdout=writer, env=buffered, timeout=300, check=False)
    os.close(writer)
    assert done.returncode == 120
