from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from ludus import errors
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
        assert ended.wait(60.0)


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
        assert asked.wait(30.0)


def test_a_killed_driver_is_noticed_at_once(asked: threading.Event) -> None:
    with subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        address = ("127.0.0.1", int(driver.stdout.readline()))
        with lifeline.connect_lifeline(address) as line:
            lifeline.Lifeline(line.fileno(), ask_exit=lambda reason: asked.set()).start()
            driver.send_signal(signal.SIGKILL)
            assert asked.wait(30.0)


def test_another_parent_means_that_the_driver_is_gone(asked: threading.Event) -> None:
    """Should the writing end have leaked into some other process, the pipe would stay open."""
    read, write = os.pipe()
    lifeline.Lifeline(read, ask_exit=lambda reason: asked.set(), parent_pid=os.getppid() + 1).start()
    assert asked.wait(30.0)
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


# ---- strangers


def connect(server: lifeline.LifelineServer) -> socket.socket:
    made = socket.create_connection(server.address, timeout=60)
    made.settimeout(60)
    return made


@pytest.fixture
def guarded() -> Iterator[lifeline.LifelineServer]:
    made = lifeline.LifelineServer("127.0.0.1", secret="open sesame")
    made.start()
    yield made
    made.close()


def test_who_knows_the_secret_is_held(guarded: lifeline.LifelineServer, asked: threading.Event) -> None:
    with lifeline.connect_lifeline(guarded.address, secret="open sesame") as line:
        watch = lifeline.Lifeline(line.fileno(), ask_exit=lambda reason: asked.set())
        assert not watch.is_lost
        assert guarded.num_held == 1
        guarded.close()
        assert watch.is_lost


@pytest.mark.parametrize("secret", [None, "open barley"])
def test_who_has_another_secret_is_refused_and_not_held(guarded: lifeline.LifelineServer, secret: str | None) -> None:
    with pytest.raises(errors.Unauthorised, match="did not accept this worker's secret"):
        lifeline.connect_lifeline(guarded.address, secret=secret)
    assert guarded.num_held == 0


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n" + bytes(64), b"\xff" * 32])
def test_a_stranger_is_disconnected_in_time_whatever_it_says(
    guarded: lifeline.LifelineServer, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifeline, "_PROVE_WITHIN_S", 0.2)
    with connect(guarded) as stranger:
        stranger.sendall(said)
        content = b""
        try:
            while part := stranger.recv(100):
                content += part
        except ConnectionResetError:  # what it said was not read to its end
            pass
        assert len(content) == 32, "the challenge, and nothing more"
    assert guarded.num_held == 0


def test_an_earlier_answer_is_worth_nothing_later(guarded: lifeline.LifelineServer) -> None:
    with connect(guarded) as one, connect(guarded) as other:
        nonce = one.recv(32)
        assert other.recv(32) != nonce
        other.sendall(lifeline._proof("open sesame", nonce))
        assert other.recv(1) == b""


def test_a_worker_gets_in_though_strangers_hold_all_the_places_there_are(
    guarded: lifeline.LifelineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifeline, "_MAX_UNPROVEN", 3)
    monkeypatch.setattr(lifeline, "_PROVE_WITHIN_S", 2.0)  # none is given up before all are there
    strangers = [connect(guarded) for _ in range(6)]
    challenged = [len(stranger.recv(32)) for stranger in strangers]
    assert challenged == [32, 32, 32, 0, 0, 0]
    with lifeline.connect_lifeline(guarded.address, secret="open sesame", timeout_s=60.0):
        assert guarded.num_held == 1
    for stranger in strangers:
        stranger.close()


def test_beyond_loopback_a_secret_is_needed() -> None:
    with pytest.raises(errors.Unauthorised, match="need the trial's secret"):
        lifeline.LifelineServer("0.0.0.0").start()
