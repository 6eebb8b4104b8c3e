"""The gateway's HTTP door: one port, its connections, and the paths that they ask for."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from ludus.gateway.auth import Auth
from ludus.gateway.http.connection import Connection
from ludus.gateway.http.limits import HttpLimits, HttpStats
from ludus.gateway.http.openapi import document
from ludus.gateway.http.outbox import Outbox, Request
from ludus.gateway.http.turns import Turns
from ludus.gateway.http.wire import RETRY, Answer, answer_of, parse_step, problem
from ludus.gateway.metrics import StepMetrics, render
from ludus.gateway.port import Acceptor, bind, borrow
from ludus.gateway.step import BadStep, Step

if TYPE_CHECKING:
    from ludus.gateway.gateway import Gateway

__all__ = ["HttpDoor"]

_GUARDED = (b"/metrics", b"/sessions")  # only for those who may call
_READS = (b"GET", b"HEAD")
_GETS = (b"/healthz", b"/readyz", b"/metrics", b"/sessions", b"/openapi.json")


class HttpDoor:
    """Requests → steps, outcomes → answers."""

    limits: HttpLimits
    checks_heads: bool  # whether `check_head` is called for every request; it always is for those with large bodies
    metrics: StepMetrics
    _gateway: Gateway
    _auth: Auth
    _has_secret: bool

    def __init__(self) -> None:
        self.stats = HttpStats()
        self.connections: set[Connection] = set()
        self.outbox = Outbox()
        self.turns = Turns()
        self._listener: socket.socket | None = None
        self._acceptor: Acceptor | None = None  # of several workers
        self._server: asyncio.AbstractServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- life -----------------------------------------------------------------------------------------------------

    def serve(self, gateway: Gateway) -> None:
        """Answer for this gateway; connections may be made from now on."""
        self._gateway = gateway
        self._auth = gateway.auth
        self.limits = gateway.options.http
        self.metrics = gateway.metrics
        self.checks_heads = gateway.auth.is_on
        self._has_secret = gateway.auth.has_secret

    async def open(self, gateway: Gateway) -> None:
        """Listen. Raises `OSError` if the port is taken."""
        self.serve(gateway)
        options = gateway.options
        self._listener = borrow(options.port_path) or bind(options.host, options.port, is_shared=gateway.size > 1)
        context = None
        if options.tls_cert is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(options.tls_cert, options.tls_key)
        if gateway.size > 1:
            self._acceptor = Acceptor(
                self._listener,
                self.connect,
                context,
                count=lambda: len(self.connections),
                path=options.counts_path,
                index=gateway.index,
                size=gateway.size,
            )
            self._acceptor.open(options.backlog)
        else:
            self._server = await asyncio.get_running_loop().create_server(
                self.connect, sock=self._listener, backlog=options.backlog, ssl=context
            )

    @property
    def port(self) -> int:
        assert self._listener is not None
        port: int = self._listener.getsockname()[1]
        return port

    def connect(self) -> Connection:
        return Connection(self)

    def sweep(self, now: float) -> None:
        if self._acceptor is not None:
            self._acceptor.publish()
        for connection in list(self.connections):
            connection.check(now)

    async def close(self) -> None:
        """Answer what was asked, and hang up."""
        if self._server is not None:
            self._server.close()
        if self._acceptor is not None:
            self._acceptor.close()
        for connection in list(self.connections):
            connection.close_idle()
        if self.connections:
            await asyncio.sleep(0.05)  # for the last answers to be sent
        for connection in list(self.connections):
            connection.abort()

    # -- requests -------------------------------------------------------------------------------------------------

    def check_head(
        self, method: bytes, path: bytes, headers: Mapping[bytes, bytes], *, is_large: bool
    ) -> Answer | None:
        """Why a request is refused before its body is read, or `None`. `is_large`: it has more than a few bytes."""
        path = path if path == b"/step" else _path_of(path)
        if path == b"/step" and method != b"POST":
            return _not_post() if is_large else None
        is_guarded = path == b"/step" or (path in _GUARDED and method in _READS)  # else 405, authorised or not
        refused = self._auth.check_head(headers) if self.checks_heads and is_guarded else None
        if refused is not None:
            return answer_of(refused)
        return problem("too_large", "only POST /step takes a body") if is_large and path != b"/step" else None

    def is_preferred(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request is read even if there is little room: one of a live session, or of another worker."""
        name = next((headers[each] for each in (b"session", b"game_id", b"game-id") if each in headers), b"")
        return bool(name) and self._gateway.may_hold(name.decode("latin-1"))

    def handle(self, request: Request) -> None:
        """Answer a request, at once or later, once."""
        if request.refused is not None:
            request.kind = "none"
            request(request.refused)
            return
        if request.path != b"/step" and _path_of(request.path) != b"/step":
            self._handle_other(request)
            return
        if request.method != b"POST":
            request.answers.send(request, _not_post())
            return
        try:
            step = parse_step(request.headers, request.body)
        except BadStep as error:
            request.kind = "none"
            request(problem("bad_request", str(error)))
            return
        request.kind = step.kind
        if step.deadline_s is not None:  # it may have waited for those before it on its connection
            step.deadline_s = max(0.0, step.deadline_s - (monotonic() - request.arrived))
        refused = self._auth.check(request.headers, step) if self._has_secret else None
        if refused is not None:
            request(refused)
        else:
            self._gateway.step(step, request)

    def refuse(self, answer: Answer) -> None:
        """A request was refused before it could be handled: count it."""
        self.metrics.add("none", answer.code, 0.0)

    # -- other paths ----------------------------------------------------------------------------------------------

    def _handle_other(self, request: Request) -> None:
        path = _path_of(request.path)
        if path not in _GETS:
            answer = problem("not_found", "there are /step, /healthz, /readyz, /metrics, /sessions and /openapi.json")
        elif request.method not in _READS:
            answer = problem("method_not_allowed", "this is read by GET", headers={b"allow": b"GET"})
        elif path == b"/healthz":
            answer = _page(b"alive\n", b"text/plain; charset=utf-8")
        elif path == b"/readyz":
            answer = self._readiness()
        elif path == b"/openapi.json":
            answer = _page(msgspec.json.encode(document()), b"application/json")
        else:
            step = Step(None, "", b"")
            refused = self._auth.check(request.headers, step) if self._has_secret else None
            if refused is None:
                task = asyncio.get_running_loop().create_task(self._describe(path, step.signature, request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return
            answer = answer_of(refused)
        request.answers.send(request, answer)

    def _readiness(self) -> Answer:
        gateway = self._gateway
        if gateway.is_ready and gateway.sessions.is_open:
            return _page(b"ready\n", b"text/plain; charset=utf-8")
        return problem("overloaded" if gateway.is_ready else "shutting_down", "no session can begin now", headers=RETRY)

    async def _describe(self, path: bytes, signature: str, request: Request) -> None:
        refused = await self._gateway.spend(signature) if signature else None
        if refused is not None:
            request.answers.send(request, refused)
            return
        workers = await self._gateway.ask_all(path[1:].decode())
        if path == b"/metrics":
            answer = _page(render(workers).encode(), b"text/plain; version=0.0.4; charset=utf-8")
        else:
            found = [{"worker": index, **each} for index, sessions in workers.items() for each in sessions]
            answer = _page(msgspec.json.encode({"num_sessions": len(found), "sessions": found}), b"application/json")
        request.answers.send(request, answer)


def _path_of(target: bytes) -> bytes:
    """The path that a request names: without its query, and without the server that is named before it, if one is."""
    path = target.partition(b"?")[0]
    if path[:8].lower().startswith((b"http://", b"https://")):
        return b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return path


def _not_post() -> Answer:
    return problem("method_not_allowed", "steps are sent by POST", headers={b"allow": b"POST"})


def _page(body: bytes, kind: bytes) -> Answer:
    return Answer(200, body, headers={b"content-type": kind})
