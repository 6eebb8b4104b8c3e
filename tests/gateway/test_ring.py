"""Several workers on one port, in one process: each on an event loop of its own."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
import types

from ludus.gateway import ring
from ludus.gateway.actor import Actor
from ludus.gateway.client import GameClient
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.journal import Journal, lost_sessions
from ludus.gateway.thread import GatewayThread


def test_a_step_that_another_worker_runs_may_take_as_long_as_it_takes(tmp_path, monkeypatch):
    gate = threading.Event()

    class Slow(Actor):
        async def tick(self, data):
            while not gate.is_set():
                await asyncio.sleep(0.01)
            return b"done"

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        options = GatewayOptions(port=probe.getsockname()[1], folder=tmp_path)
    workers = [GatewayThread(Slow, options, index=index, size=2) for index in range(2)]
    answers = []

    def play(session):
        with GameClient(workers[0].url, session, timeout_s=30, retries=0) as game:
            game.start()
            answers.append(game.tick(b""))

    with workers[0], workers[1]:
        games = [threading.Thread(target=play, args=(f"s{number}",)) for number in range(8)]
        for game in games:
            game.start()
        until = time.monotonic() + 20
        while sum(each.gateway.sessions.num_waiting for each in workers) < len(games) and time.monotonic() < until:
            time.sleep(0.01)
        passed_on = sum(each.gateway.stats()["num_forwarded"] for each in workers)
        now = time.monotonic
        monkeypatch.setattr(ring, "time", types.SimpleNamespace(monotonic=lambda: now() + 3600))
        time.sleep(0.6)  # in which each worker looks after its own twice
        gate.set()
        for game in games:
            game.join(20)
    assert passed_on > 0
    assert answers == [b"done"] * len(games)


def first_of(worker, size=2):
    """An id that belongs to a worker."""
    return next(f"s{number}" for number in range(1000) if ring.owner_of(f"s{number}", size) == worker)


def step(worker, **headers):
    """Status and problem code of one step, sent to a worker."""
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/step", b"", headers)
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body)["code"] if response.status != 200 else ""


@contextlib.contextmanager
def alone(tmp_path):
    """Worker 0 of two; the other is not there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        options = GatewayOptions(port=probe.getsockname()[1], folder=tmp_path)
    with GatewayThread(Actor, options, index=0, size=2) as worker:
        yield worker


def test_a_deadline_is_kept_by_the_worker_that_passes_the_step_on(tmp_path):
    with alone(tmp_path) as worker, socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(worker.gateway._ring.path(1)))
        deaf.listen(8)  # the kernel accepts for it, and nobody answers: as a process that is stopped
        began = time.monotonic()
        found = step(worker, session=first_of(1), step_kind="tick", step="1", deadline_ms="200")
        assert found == (504, "deadline_exceeded")
        assert 0.2 <= time.monotonic() - began < 10


def test_the_journals_of_a_dead_worker_are_read_off_the_event_loop(tmp_path, monkeypatch):
    threads = []

    def read(paths, **more):
        threads.append(threading.current_thread().name)
        return lost_sessions(paths, **more)

    monkeypatch.setattr(ring, "lost_sessions", read)
    lost = first_of(1)
    with alone(tmp_path) as worker:
        journal = Journal(tmp_path / f"{worker.port}-1.journal")
        journal.began(lost, "1")  # by the worker that is not there any more
        journal.close()
        assert step(worker, session=lost, step_kind="tick") == (410, "session_lost")
        unknown = next(f"u{number}" for number in range(1000) if ring.owner_of(f"u{number}", 2) == 1)
        assert step(worker, session=unknown, step_kind="tick") == (404, "unknown_session")
    assert threads
    assert "gateway" not in threads
