"""One port, lent to several workers: none waits for another, and each gets its share."""

import contextlib
import errno
import http.client
import socket
import threading
import time

import pytest

from ludus.gateway.actor import Actor
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.port import Port, borrow
from ludus.gateway.thread import GatewayThread


class Blocking(Actor):
    gate = threading.Event()
    entered = threading.Event()

    def tick(self, data):
        if data == b"block":
            self.entered.set()
            self.gate.wait(60)
        return data


@pytest.fixture
def options(tmp_path):
    """Of a gateway whose port is lent."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        made = GatewayOptions(port=probe.getsockname()[1], folder=tmp_path)
    with contextlib.closing(Port(made.host, made.port, made.port_path)):
        yield made


@pytest.fixture
def games(options):
    """`games(n, body)`: as many connections with one request each, not yet read."""
    with contextlib.ExitStack() as stack:

        def ask(count, body):
            made = [http.client.HTTPConnection("127.0.0.1", options.port, timeout=60) for _ in range(count)]
            for game in made:
                stack.callback(game.close)
                game.request("POST", "/step", body)
            return made

        yield ask


def answers(games):
    return [game.getresponse().read() for game in games]


def num_connections(worker):
    return worker.gateway.http.stats.num_connections


def test_a_port_is_lent_to_any_number_and_taken_by_nobody_else(options):
    with (
        contextlib.closing(borrow(options.port_path)) as first,
        contextlib.closing(borrow(options.port_path)) as second,
    ):
        assert first.getsockname() == second.getsockname() == ("127.0.0.1", options.port)
        with pytest.raises(OSError, match="cannot listen on") as refused:
            Port(options.host, options.port, options.port_path)
        assert refused.value.errno == errno.EADDRINUSE
        with contextlib.closing(borrow(options.port_path)) as third:
            assert third.getsockname() == first.getsockname(), "who was refused has spoilt nothing"


def test_connections_wait_for_the_first_worker_and_outlive_it(options):
    dying = borrow(options.port_path)
    with socket.create_connection(("127.0.0.1", options.port), timeout=60) as waiting:
        dying.close()
        waiting.sendall(b"x")
        with contextlib.closing(borrow(options.port_path)) as successor:
            successor.setblocking(True)
            accepted, _address = successor.accept()
            with accepted:
                assert accepted.recv(1) == b"x"


def test_a_port_that_nobody_lends_cannot_be_borrowed(tmp_path):
    path = tmp_path / "port"
    assert borrow(path) is None
    port = Port("127.0.0.1", 0, path)
    port.close()
    port.close()
    assert borrow(path) is None
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(path))  # of a process that was killed
    assert borrow(path) is None
    with contextlib.closing(Port("127.0.0.1", 0, path)), contextlib.closing(borrow(path)) as borrowed:
        assert borrowed is not None


def test_who_has_few_connections_gets_the_next(options, games, monkeypatch):
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(GatewayThread(Blocking, options, index=0, size=2))]
        for _ in range(10):
            assert answers(games(1, b"x")) == [b"x"]
        monkeypatch.setattr("ludus.gateway.port._AFTER_YOU_S", 5.0)  # the workers are threads here, and take turns
        workers.append(stack.enter_context(GatewayThread(Blocking, options, index=1, size=2)))
        for _ in range(8):
            assert answers(games(1, b"x")) == [b"x"]
        few = num_connections(workers[1])
        assert num_connections(workers[0]) + few == 18
        assert few >= 7


def test_no_connection_waits_for_a_worker_that_is_held_up_or_gone(options, games):
    Blocking.gate.clear()
    Blocking.entered.clear()
    with contextlib.ExitStack() as stack:
        gone = GatewayThread(Blocking, options, index=2, size=3)
        gone.start()
        gone.stop()
        stuck = stack.enter_context(GatewayThread(Blocking, options, index=0, size=3))
        stack.callback(Blocking.gate.set)
        blocked = games(1, b"block")
        assert Blocking.entered.wait(60)
        other = stack.enter_context(GatewayThread(Blocking, options, index=1, size=3))
        assert answers(games(32, b"x")) == [b"x"] * 32
        assert num_connections(other) == 32
        assert num_connections(stuck) == 1
        Blocking.gate.set()
        assert answers(blocked) == [b"block"]


def test_a_connection_that_hangs_up_at_once_leaves_nothing_behind(options, games):
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(GatewayThread(Blocking, options, index=i, size=2)) for i in range(2)]
        for _ in range(20):
            socket.create_connection(("127.0.0.1", options.port)).close()
        assert answers(games(4, b"x")) == [b"x"] * 4
        until = time.monotonic() + 60
        while sum(num_connections(worker) for worker in workers) != 4:
            assert time.monotonic() < until
            time.sleep(0.01)
