"""A gateway worker: listens, finds the session of each request, and sees to leases, slow clients and its own end.

gateway = Gateway(make_actor, GatewayOptions(port=8000))
await gateway.start()
...
await gateway.stop()
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from ludus import errors
from ludus.gateway.actor import MakeActor
from ludus.gateway.auth import Auth
from ludus.gateway.handover import Door
from ludus.gateway.http.connection import Connection, HttpLimits, HttpStatistics, Request
from ludus.gateway.http.outbox import Outbox
from ludus.gateway.http.turns import Turns
from ludus.gateway.journal import Journal
from ludus.gateway.metrics import StepMetrics, render
from ludus.gateway.openapi import document
from ludus.gateway.ring import Ring, owner_of
from ludus.gateway.router import Router
from ludus.gateway.running import Done
from ludus.gateway.sessions import Observer, SessionLimits, Sessions
from ludus.gateway.step import Answer, BadStep, Step, problem
from ludus.rpc.address import is_loopback, runtime_folder

__all__ = ["Gateway", "GatewayOptions", "beat_path", "door_path"]

_LOG = logging.getLogger(__name__)
_SWEEP_EVERY_S = 0.25
_HELD_UP_S = 0.1  # that a sweep may be late before the loop counts as held up
_SPEND = "spend "
_TOLD = (b"/metrics", b"/sessions")  # only to those who may call
_READS = (b"GET", b"HEAD")
_GETS = (b"/healthz", b"/readyz", b"/metrics", b"/sessions", b"/openapi.json")


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """How a gateway listens. `folder` is where it keeps its journal; without one, nothing survives it."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    tls_cert: str | None = None
    tls_key: str | None = None
    folder: Path | None = None
    route: Mapping[str, float] = field(default_factory=dict)  # what sessions play that do not ask: tags, and shares
    sessions: SessionLimits = field(default_factory=SessionLimits)
    http: HttpLimits = field(default_factory=HttpLimits)
    backlog: int = 1024
    max_block_s: float = 10.0  # that an actor's method may hold up the event loop; see watch.py

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not (self.token or self.secret):
            raise errors.Unauthorised(
                f"a gateway on {self.host} can be reached from elsewhere: give it a token or a secret, or use 127.0.0.1"
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            raise errors.ConfigError("TLS needs both a certificate and its key")


class Gateway:
    """Worker `index` of the `size` that share a port. Lives on one event loop."""

    def __init__(
        self,
        make_actor: MakeActor,
        options: GatewayOptions,
        *,
        index: int = 0,
        size: int = 1,
        observer: Observer | None = None,
    ) -> None:
        self._options = options
        self.port = options.port
        self._index = index
        self._size = size
        spent = None if options.folder is None else options.folder / f"{options.port}-{index}.spent"
        others = [] if options.folder is None else sorted(options.folder.glob(f"{options.port}-*.spent"))
        self._auth = Auth(token=options.token, secret=options.secret, path=spent, others=others)
        self._journal = Journal(self._journal_of(index), self._journals()) if options.folder is not None else None
        self.sessions = Sessions(
            make_actor,
            limits=options.sessions,
            journal=self._journal,
            observer=observer,
            route=Router(options.route, self._counts_path()) if options.route else None,
            stateless_route=Router(options.route) if options.route else None,  # the shares of sessions are exact
            spend=self._auth.spend_start if self._auth.has_secret else None,
        )
        self._steps = StepMetrics()
        self._http = HttpStatistics()
        self._connections: set[Connection] = set()
        self._outbox = Outbox()
        self._turns = Turns()
        self._ring: Ring | None = None
        self._door: Door | None = None  # for connections that other workers cannot serve
        self.listener: socket.socket | None = None
        self.num_turns = 0  # counted up while the event loop turns
        self.checks_heads = self._auth.is_on
        self._is_plain = size == 1 and not self._auth.has_secret  # a step needs no look before it is run
        self._server: asyncio.AbstractServer | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._asks: set[asyncio.Task[None]] = set()
        self._is_ready = False

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Raises `OSError` if the port is taken."""
        loop = asyncio.get_running_loop()
        options = self._options
        if self._size > 1:
            self._ring = Ring(
                self._index,
                self._size,
                folder=_runtime_folder(options),
                journals=self._journals,
                answer_ask=self.answer_ask,
            )
            await self._ring.start(self.sessions, self._auth)
        self.listener = listener = listen(options.host, options.port, shared=self._size > 1)
        self.port = listener.getsockname()[1]
        context = None
        if options.tls_cert is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(options.tls_cert, options.tls_key)
        self._server = await loop.create_server(self._connect, sock=listener, backlog=options.backlog, ssl=context)
        if self._size > 1:
            self._door = Door(door_path(options, self._index), self._connect, context)
            self._door.open()
        self._sweeper = loop.create_task(self._sweep())
        self._is_ready = True

    async def stop(self, grace_s: float = 5.0) -> None:
        """Take no more sessions, end those that live, answer what is under way, hang up."""
        self._is_ready = False
        await self.sessions.leave(grace_s)
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.close_idle()
        if self._connections:
            await asyncio.sleep(0.05)  # for the last answers to be sent
        for connection in list(self._connections):
            connection.abort()
        if self._door is not None:
            self._door.close()
        if self._ring is not None:
            await self._ring.close()
        if self._journal is not None:
            self._journal.close()
        self._auth.close()

    def _connect(self) -> Connection:
        limits, shared = self._options.http, (self._connections, self._outbox, self._turns, self._steps)
        return Connection(self, limits, self._http, *shared)

    async def _sweep(self) -> None:
        last = monotonic()
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            now = monotonic()
            late_s = now - last - _SWEEP_EVERY_S
            held_up_s = late_s if late_s > _HELD_UP_S else 0.0
            last = now
            self.num_turns += 1
            try:
                self.sessions.sweep(held_up_s)
                for connection in list(self._connections):
                    connection.check(now - held_up_s)  # what they sent meanwhile is still to be read
            except Exception:
                _LOG.exception("sweeping failed; it goes on")

    def _journal_of(self, index: int) -> Path:
        folder = self._options.folder
        assert folder is not None
        return folder / f"{self._options.port}-{index}.journal"

    def _journals(self) -> list[Path]:
        """Of all workers that this port has had; there may have been more of them before."""
        folder = self._options.folder
        return [] if folder is None else sorted(folder.glob(f"{self._options.port}-*.journal"))

    def _counts_path(self) -> Path | None:
        folder = self._options.folder
        return None if folder is None else folder / f"{self._options.port}.routes"

    # -- requests -------------------------------------------------------------------------------------------------

    def check_head(
        self, method: bytes, path: bytes, headers: Mapping[bytes, bytes], *, is_large: bool
    ) -> Answer | None:
        """Why a request is refused before its body is read, or `None`. `is_large`: it has more than a few bytes."""
        path = path if path == b"/step" else _path_of(path)
        if path == b"/step":
            if method != b"POST":
                return _not_post() if is_large else None
            return self._auth.check_head(headers) if self.checks_heads else None
        refused = self._auth.check_head(headers) if self.checks_heads and path in _TOLD else None
        if method not in _READS or refused is None:  # a wrong method is answered 405, authorised or not
            refused = problem("too_large", "only POST /step takes a body") if is_large else None
        return refused

    def is_preferred(self, headers: Mapping[bytes, bytes]) -> bool:
        """Steps of live sessions are, and those that another worker may have."""
        name = next((headers[each] for each in (b"session", b"game_id", b"game-id") if each in headers), b"")
        session = name.decode("latin-1")
        if not session:
            return False
        return self.sessions.find(session) is not None or owner_of(session, self._size) != self._index

    def handle(self, request: Request) -> None:
        if request.refused is not None:
            request.kind = "none"
            request(request.refused)
            return
        if request.path != b"/step" and _path_of(request.path) != b"/step":
            self._handle_other(request)
            return
        if request.method != b"POST":
            request.connection.answer(request, _not_post())
            return
        try:
            step = Step.parse(request.headers, request.body)
        except BadStep as error:
            request.kind = "none"
            request(problem("bad_request", str(error)))
            return
        request.kind = step.kind
        if step.deadline_s is not None:  # it may have waited for those before it on its connection
            step.deadline_s = max(0.0, step.deadline_s - (monotonic() - request.arrived))
        if self._is_plain:
            self.sessions.step(step, request)
            return
        refused = self._auth.check(request.headers, step) if self._auth.has_secret else None
        if refused is not None:
            request(refused)
        elif self._ring is not None:
            self._route(self._ring, step, request)
        else:
            self._run(step, request)

    def _route(self, ring: Ring, step: Step, done: Done) -> None:
        """Have the step run by the worker that it belongs to; a stateless one may be run by any, if signed by one."""
        name = step.session or step.signature
        owner = owner_of(name, self._size) if name else self._index
        if owner != self._index:
            ring.forward(owner, step, done)
        else:
            self._run(step, done)

    def _run(self, step: Step, done: Done) -> None:
        refused = self._auth.use(step)
        if refused is not None:
            done(refused)
        else:
            self.sessions.step(step, done)

    def refuse(self, answer: Answer) -> None:
        self._steps.add("none", answer.code, 0.0)

    def _handle_other(self, request: Request) -> None:
        path = _path_of(request.path)
        if path not in _GETS:
            answer = problem("not_found", "there are /step, /healthz, /readyz, /metrics, /sessions and /openapi.json")
        elif request.method not in _READS:
            answer = problem("method_not_allowed", "this is read by GET", headers={b"allow": b"GET"})
        elif path == b"/healthz":
            answer = _text("alive\n")
        elif path == b"/readyz":
            answer = _text("ready\n") if self._is_ready and self.sessions.is_open else self._not_ready()
        elif path == b"/openapi.json":
            answer = Answer(200, msgspec.json.encode(document()), headers={b"content-type": b"application/json"})
        else:
            step = Step(None, "", b"")
            refused = self._auth.check(request.headers, step) if self._auth.has_secret else None
            if refused is None:
                task = asyncio.get_running_loop().create_task(self._tell(path, step.signature, request))
                self._asks.add(task)
                task.add_done_callback(self._asks.discard)
                return
            answer = refused
        request.connection.answer(request, answer)

    def _not_ready(self) -> Answer:
        code = "overloaded" if self._is_ready else "shutting_down"
        return problem(code, "no session can begin now", headers={b"retry-after": b"1"})

    async def _tell(self, path: bytes, signature: str, request: Request) -> None:
        refused = await self._spend(signature) if signature else None
        if refused is not None:
            request.connection.answer(request, refused)
            return
        what = path[1:].decode()
        workers = await self._ring.ask_all(what) if self._ring is not None else {self._index: self.answer_ask(what)}
        if path == b"/metrics":
            kind = b"text/plain; version=0.0.4; charset=utf-8"
            answer = Answer(200, render(workers).encode(), headers={b"content-type": kind})
        else:
            found = [{"worker": index, **each} for index, told in workers.items() for each in told]
            body = msgspec.json.encode({"num_sessions": len(found), "sessions": found})
            answer = Answer(200, body, headers={b"content-type": b"application/json"})
        request.connection.answer(request, answer)

    async def _spend(self, signature: str) -> Answer | None:
        """Have a signature spent by the worker that it belongs to, as `_route` does with stateless ticks."""
        owner = owner_of(signature, self._size)
        if self._ring is None or owner == self._index:
            return self._auth.use(Step(None, "", b"", signature=signature))
        told = await self._ring.ask(owner, _SPEND + signature)
        if told is None:
            detail = "the worker that knows whether this signature was used is being started again"
            return problem("overloaded", detail, headers={b"retry-after": b"1"})
        return problem("replayed", told) if told else None

    # -- what it tells ----------------------------------------------------------------------------------------------

    def answer_ask(self, what: str) -> Any:
        """What the other workers want to know of this one."""
        if what.startswith(_SPEND):
            refused = self._auth.use(Step(None, "", b"", signature=what.removeprefix(_SPEND)))
            return "" if refused is None else msgspec.json.decode(refused.body)["detail"]
        return list(self.sessions.describe()) if what == "sessions" else self.figures()

    def figures(self) -> dict[str, Any]:
        """All counters, as plain data."""
        statistics = self.sessions.statistics
        return {
            "steps": self._steps.to_json(),
            "num_sessions": len(self.sessions),
            "num_waiting": self.sessions.num_waiting,
            "num_forwarded": self._ring.num_forwarded if self._ring is not None else 0,
            "num_started": statistics.num_started,
            "num_steps": statistics.num_steps,
            "num_repeats": statistics.num_repeats,
            "num_fallbacks": statistics.num_fallbacks,
            "num_unwritten": self.sessions.num_unwritten,
            "ended": dict(statistics.ended),
            **asdict(self._http),
        }


def beat_path(options: GatewayOptions, index: int) -> Path:
    """Where worker `index` counts up while it lives."""
    return _runtime_folder(options) / f"{index}.beat"


def door_path(options: GatewayOptions, index: int) -> Path:
    """Where worker `index` takes over connections."""
    return _runtime_folder(options) / f"{index}.door"


def _runtime_folder(options: GatewayOptions) -> Path:
    """Unix sockets have short names, so theirs is made of the long one's digest."""
    name = f"{options.folder}:{options.host}:{options.port}"
    return runtime_folder() / f"gateway-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def listen(host: str, port: int, *, shared: bool) -> socket.socket:
    """A socket that listens; `shared` with others of this user on the same port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    made.setblocking(False)
    return made


def _path_of(target: bytes) -> bytes:
    """The path that a request names: without its query, and without the server that is named before it, if one is."""
    path = target.partition(b"?")[0]
    if path[:8].lower().startswith((b"http://", b"https://")):
        return b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return path


def _not_post() -> Answer:
    return problem("method_not_allowed", "steps are sent by POST", headers={b"allow": b"POST"})


def _text(text: str) -> Answer:
    return Answer(200, text.encode(), headers={b"content-type": b"text/plain; charset=utf-8"})
