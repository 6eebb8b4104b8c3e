"""A gateway for a test: real sockets, a free port, an actor of the test's own.

    with serving(EchoActor, lease_s=0.5, token="secret") as url:
        GameClient(url, "session-1", token="secret")

What follows the actor are fields of `GatewayOptions`, `SessionLimits` and `HttpLimits`. The url also has `.gateway`
and `.call(function)`, which runs a function on the gateway's loop; with `grpc_port=0`, `.grpc` is its gRPC door.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ludus.gateway.actor import Actor, MakeActor
from ludus.gateway.gateway import Gateway, GatewayOptions
from ludus.gateway.http.limits import HttpLimits
from ludus.gateway.session_core import Observer, SessionLimits
from ludus.gateway.thread import GatewayThread

__all__ = ["CountingActor", "CuttingProxy", "EchoActor", "ServedUrl", "serving"]


class ServedUrl(str):
    """Where the gateway is, and the gateway itself."""

    __slots__ = ("_thread",)
    _thread: GatewayThread

    def __new__(cls, thread: GatewayThread) -> ServedUrl:
        self = super().__new__(cls, thread.url)
        self._thread = thread
        return self

    @property
    def gateway(self) -> Gateway:
        return self._thread.gateway

    @property
    def port(self) -> int:
        return self._thread.port

    @property
    def grpc(self) -> str:
        """Where its gRPC door is."""
        return self._thread.grpc_url

    def call(self, function: Callable[[], Any]) -> Any:
        return self._thread.call(function)


@contextlib.contextmanager
def serving(make_actor: MakeActor, *, observer: Observer | None = None, **options: Any) -> Iterator[ServedUrl]:
    """Serve the actor within the `with`. `options` are fields of the gateway's options or of its limits."""
    nested: dict[str, Any] = {}
    for name, kind in (("sessions", SessionLimits), ("http", HttpLimits)):
        fields = {field.name for field in dataclasses.fields(kind)}
        given = {key: options.pop(key) for key in list(options) if key in fields}
        if given:
            nested[name] = kind(**given)
    with GatewayThread(make_actor, GatewayOptions(**options, **nested), observer=observer) as thread:
        yield ServedUrl(thread)


class EchoActor(Actor):
    """Answers what it is sent."""

    def start(self, session: Any, data: bytes) -> bytes:
        return data

    def tick(self, data: bytes) -> bytes:
        return data

    def end(self, data: bytes) -> bytes:
        return data


class CountingActor(Actor):
    """Answers how many ticks it ran, and what it was sent; `end` answers the number of ticks."""

    def __init__(self) -> None:
        self.num_ticks = 0

    def start(self, session: Any, data: bytes) -> bytes:
        return b"started:" + data

    def tick(self, data: bytes) -> bytes:
        self.num_ticks += 1
        return b"%d:%b" % (self.num_ticks, data)

    def end(self, data: bytes) -> bytes:
        return b"%d" % self.num_ticks


class CuttingProxy:
    """A TCP proxy that hangs up in the middle of answers: after every `every`-th answer's first `keep` bytes.

    `keep` may be 0: the game's bytes have arrived, and nothing comes back.
    """

    def __init__(self, port: int, *, every: int = 3, keep: int = 20) -> None:
        self._to = port
        self._every = every
        self._keep = keep
        self._lock = threading.Lock()
        self._num_answers = 0
        self.num_cuts = 0
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                proxy._pass(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True, name="proxy")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _pass(self, game: socket.socket) -> None:
        """One request, one answer, in turn; a request here is what comes by one read, so bodies are to be small."""
        with socket.create_connection(("127.0.0.1", self._to), timeout=30.0) as server:
            to_server = threading.Thread(target=_pump, args=(game, server), daemon=True)
            to_server.start()
            while data := _receive(server):
                with self._lock:
                    self._num_answers += 1
                    is_cut = self._num_answers % self._every == 0
                    self.num_cuts += is_cut
                try:
                    game.sendall(data[: self._keep] if is_cut else data)
                except OSError:
                    break
                if is_cut:
                    break
            for each in (game, server):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            to_server.join(5.0)

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._thread.join(5.0)
        self._server.server_close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    while data := _receive(source):
        try:
            target.sendall(data)
        except OSError:
            return


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""
