"""Workers that hang: noticed by their beats, with a clock of our own and real processes."""

import itertools
import os
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest

from ludus import errors
from ludus.clock import FakeClock
from ludus.gateway.beat import is_process, is_stopped, read_pulse
from ludus.gateway.watch import LoopWatch, Watch

BEATING = """
import sys, time
from pathlib import Path
from ludus.gateway.beat import Beat
beat = Beat(Path(sys.argv[1]))
beat.beat(1)
print("up", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def worker(tmp_path):
    """A process that has beaten once."""
    with subprocess.Popen([sys.executable, "-c", BEATING, tmp_path / "0.beat"], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def wait_for(condition, what):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.01)


def look(watch, clock, seconds):
    for _ in range(int(seconds * 4)):
        clock.advance(0.25)
        watch.check()


def test_a_process_that_is_stopped_is_killed_after_two_seconds(worker, tmp_path, caplog):
    clock = FakeClock()
    watch = Watch({"actor-1/0": tmp_path / "0.beat"}, max_block_s=10.0, clock=clock.now)
    watch.check()
    os.kill(worker.pid, signal.SIGSTOP)
    wait_for(lambda: is_stopped(read_pulse(tmp_path / "0.beat")), "it is stopped")
    look(watch, clock, 1.75)
    assert worker.poll() is None
    look(watch, clock, 0.5)
    assert worker.wait(60) == -signal.SIGKILL
    assert "actor-1/0" in caplog.text
    assert "stopped" in caplog.text


def test_a_process_that_runs_and_does_not_beat_has_until_the_limit(worker, tmp_path):
    clock = FakeClock()
    watch = Watch({"w": tmp_path / "0.beat"}, max_block_s=10.0, clock=clock.now)
    watch.check()
    look(watch, clock, 64.75)
    assert worker.poll() is None
    look(watch, clock, 0.5)
    assert worker.wait(60) == -signal.SIGKILL


def test_a_watcher_that_was_held_up_itself_blames_nobody(worker, tmp_path):
    clock = FakeClock()
    watch = Watch({"w": tmp_path / "0.beat"}, max_block_s=10.0, clock=clock.now)
    watch.check()
    os.kill(worker.pid, signal.SIGSTOP)
    wait_for(lambda: is_stopped(read_pulse(tmp_path / "0.beat")), "it is stopped")
    clock.advance(3600)  # the machine slept, say
    watch.check()
    os.kill(worker.pid, signal.SIGCONT)
    wait_for(lambda: not is_stopped(read_pulse(tmp_path / "0.beat")), "it goes on")
    look(watch, clock, 5)
    assert worker.poll() is None


def test_another_process_with_the_same_id_is_left_alone(worker, tmp_path):
    path = tmp_path / "0.beat"
    pid, started, *counts = read_pulse(path)
    path.write_bytes(struct.pack("<QQQQ", pid, started - 1, *counts))  # of one that had this id before
    assert not is_process(read_pulse(path))
    clock = FakeClock()
    watch = Watch({"w": path}, max_block_s=1.0, clock=clock.now)
    look(watch, clock, 60)
    assert worker.poll() is None


def test_a_loop_that_does_not_turn_is_reported_with_the_line_that_holds_it_up():
    clock, gate = FakeClock(), threading.Event()

    def hold_up():
        gate.wait(60)  # this line

    thread = threading.Thread(target=hold_up)
    thread.start()
    watch = LoopWatch(max_block_s=3.0, clock=clock.now)
    try:
        assert watch.check(1, cpu_s=0.5, thread=thread.ident) == 0
        for _ in range(11):
            clock.advance(0.25)
            assert watch.check(1, cpu_s=0.5, thread=thread.ident) < 3
        assert watch.check(2, cpu_s=0.5, thread=thread.ident) == 0, "it turned"
        with pytest.raises(errors.WorkerError, match=r"max_block_s is 3(.|\n)*# this line"):
            for _ in range(13):
                clock.advance(0.25)
                watch.check(2, cpu_s=0.5, thread=thread.ident)
    finally:
        gate.set()
        thread.join(60)


def test_what_computes_is_given_six_times_as_long():
    clock = FakeClock()
    watch = LoopWatch(max_block_s=3.0, clock=clock.now)
    looks = iter(range(1000))
    for number in itertools.islice(looks, 18 * 4):
        watch.check(1, cpu_s=number * 0.0125, thread=None)  # a twentieth of one processor: the machine is busy
        clock.advance(0.25)
    with pytest.raises(errors.WorkerError, match="held up for 18"):
        watch.check(1, cpu_s=next(looks) * 0.0125, thread=None)
