"""A payload that ends the gateway's process, as a segfault in an actor would, again and again: serving goes on."""

import contextlib
import http.client
import os
import time

import ludus
from ludus.gateway.client import GameClient


class Fragile(ludus.Actor):
    def start(self, session, data):
        return b"started"

    def tick(self, data):
        if data == b"die":
            os._exit(3)
        return data


def kill_by_payload(port):
    """As soon as there is a process: its first request is its last, and comes before any heartbeat."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            try:
                connection.connect()
            except OSError:
                time.sleep(0.001)
                continue
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("POST", "/step", b"die")
                connection.getresponse().read()
            return
    raise AssertionError("the gateway did not come back")


def test_one_payload_does_not_end_serving_however_often_it_is_sent(trial):
    actor = ludus.RemoteActor()
    actor.serve(Fragile)
    for _ in range(4):
        kill_by_payload(actor.port)
    with GameClient(actor.url, "good", retries=50, timeout_s=60) as game:
        assert game.start() == b"started"
        assert game.tick(b"hello") == b"hello"
