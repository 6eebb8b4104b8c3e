"""Several workers on one port, in one process: each on an event loop of its own."""

import asyncio
import socket
import threading
import time
import types

from ludus.gateway import ring
from ludus.gateway.actor import Actor
from ludus.gateway.client import GameClient
from ludus.gateway.gateway import GatewayOptions
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
        passed_on = sum(each.gateway.figures()["num_forwarded"] for each in workers)
        now = time.monotonic
        monkeypatch.setattr(ring, "time", types.SimpleNamespace(monotonic=lambda: now() + 3600))
        time.sleep(0.6)  # in which each worker looks after its own twice
        gate.set()
        for game in games:
            game.join(20)
    assert passed_on > 0
    assert answers == [b"done"] * len(games)
