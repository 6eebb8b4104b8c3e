from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from ludus.launch import lifeline

DRIVER = """
import time
from ludus.launch.lifeline import LifelineServer
server = LifelineServer("127.0.0.1")
server.start()
print(server.address[1], flush=True)
time.sleep(1000)
"""


@pytest.fixture
def server() -> Iterator[lifeline.LifelineServer]:
    made = lifeline.LifelineServer("127.0.0.1")
    made.start()
    yield made
    made.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set when a worker is asked to exit; the process of the test is spared what follows, and waits until it has."""
    made, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(lifeline, "_GRACE_S", 0.0)
    monkeypatch.setattr(lifeline, "end_process_group", ended.set)
    yield made
    if made.is_set():
        assert ended.wait(5.0)


def test_a_line_to_a_living_driver_is_not_lost(server: lifeline.LifelineServer, asked: threading.Event) -> None:
    with lifeline.connect_lifeline(server.address) as line:
        watch = lifeline.Lifeline(line.fileno(), ask_exit=lambda reason: asked.set())
        watch.start()
        assert not asked.wait(0.1)
        assert not watch.is_lost
        watch.release()


def test_every_line_ends_when_the_server_is_closed(asked: threading.Event) -> None:
    server = lifeline.LifelineServer("127.0.0.1")
    server.start()
    with lifeline.connect_lifeline(server.address) as line:
        lifeline.Lifeline(line.fileno(), ask_exit=lambda reason: asked.set()).start()
        server.close()
        assert asked.wait(2.0)


def test_a_killed_driver_is_noticed_at_once(asked: threading.Event) -> None:
    with subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        address = ("127.0.0.1", int(driver.stdout.readline()))
        with lifeline.connect_lifeline(address) as line:
            lifeline.Lifeline(line.fileno(), ask_exit=lambda reason: asked.set()).start()
            driver.send_signal(signal.SIGKILL)
            began = time.monotonic()
            assert asked.wait(2.0)
            assert time.monotonic() - began < 0.5


def test_another_parent_means_that_the_driver_is_gone(asked: threading.Event) -> None:
    """Should the writing end have leaked into some other process, the pipe would stay open."""
    read, write = os.pipe()
    lifeline.Lifeline(read, ask_exit=lambda reason: asked.set(), parent_pid=os.getppid() + 1).start()
    assert asked.wait(2.0)
    os.close(read)
    os.close(write)


def test_a_worker_that_has_ended_no_longer_minds(asked: threading.Event) -> None:
    read, write = os.pipe()
    watch = lifeline.Lifeline(read, ask_exit=lambda reason: asked.set())
    watch.start()
    watch.release()
    os.close(write)
    assert not asked.wait(0.7)
    os.close(read)
