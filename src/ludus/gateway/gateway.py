"""A gateway worker: its sessions, the doors that games come through, and the other workers of its port.

gateway = Gateway(make_actor, GatewayOptions(port=8000))
await gateway.start()
...
await gateway.stop()
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from ludus import errors
from ludus.gateway.actor import MakeActor
from ludus.gateway.auth import Auth
from ludus.gateway.http.door import HttpDoor
from ludus.gateway.http.limits import HttpLimits
from ludus.gateway.journal import Journal
from ludus.gateway.live_session import Done
from ludus.gateway.metrics import StepMetrics
from ludus.gateway.ring import Ring, owner_of
from ludus.gateway.router import Router
from ludus.gateway.session_core import Observer, SessionCore, SessionLimits
from ludus.gateway.step import Outcome, Step
from ludus.rpc.address import is_loopback, runtime_folder

if TYPE_CHECKING:
    from ludus.gateway.grpc.door import GrpcDoor

__all__ = ["Door", "Gateway", "GatewayOptions"]

_LOG = logging.getLogger(__name__)
_SWEEP_EVERY_S = 0.25
_HELD_UP_S = 0.1  # that a sweep may be late before the loop counts as held up
_SPEND = "spend "


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """How a gateway listens. `folder` is where it keeps its journal; without one, nothing survives it."""

    host: str = "127.0.0.1"
    port: int = 0
    grpc_port: int | None = None  # of the gRPC door; 0: any free one; `None`: there is none
    token: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    tls_cert: str | None = None
    tls_key: str | None = None
    folder: Path | None = None
    route: Mapping[str, float] = field(default_factory=dict)  # what sessions play that do not ask: tags, and shares
    sessions: SessionLimits = field(default_factory=SessionLimits)
    http: HttpLimits = field(default_factory=HttpLimits)  # the gRPC door keeps those that are not of HTTP alone
    backlog: int = 1024
    max_block_s: float = 10.0  # that an actor's method may hold up the event loop; see watch.py

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not (self.token or self.secret):
            raise errors.Unauthorised(
                f"a gateway on {self.host} can be reached from elsewhere: give it a token or a secret, or use 127.0.0.1"
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            raise errors.ConfigError("TLS needs both a certificate and its key")

    @property
    def runtime_folder(self) -> Path:
        """Unix sockets have short names, so this one is made of the long one's digest."""
        name = f"{self.folder}:{self.host}:{self.port}"
        return runtime_folder() / f"gateway-{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    def beat_path(self, index: int) -> Path:
        """Where worker `index` counts up while it lives."""
        return self.runtime_folder / f"{index}.beat"

    @property
    def port_path(self) -> Path:
        """Where the process that starts the workers lends them the port."""
        return self.runtime_folder / "port"

    @property
    def counts_path(self) -> Path:
        """Where the workers count their connections."""
        return self.runtime_folder / "connections"

    def files(self, suffix: str) -> list[Path]:
        """Those of all workers that this port has had; there may have been more of them before."""
        return [] if self.folder is None else sorted(self.folder.glob(f"{self.port}-*.{suffix}"))

    def file(self, index: int, suffix: str) -> Path | None:
        """That of worker `index`."""
        return None if self.folder is None else self.folder / f"{self.port}-{index}.{suffix}"


class Door(Protocol):
    """One protocol: its requests become steps, given to `Gateway.step`; their outcomes become its answers."""

    async def open(self, gateway: Gateway) -> None: ...

    def sweep(self, now: float) -> None:
        """Cut off those who are too slow. Called a few times a second."""
        ...

    async def close(self) -> None:
        """All sessions have ended: answer what was asked, and hang up."""
        ...


class Gateway:
    """Worker `index` of the `size` that share a port. Lives on one event loop. `doors` are opened beside HTTP's."""

    def __init__(
        self,
        make_actor: MakeActor,
        options: GatewayOptions,
        *,
        index: int = 0,
        size: int = 1,
        observer: Observer | None = None,
        doors: Sequence[Door] = (),
    ) -> None:
        self.options = options
        self.port = options.port
        self.index = index
        self.size = size
        self.auth = Auth(
            token=options.token, secret=options.secret, path=options.file(index, "spent"), others=options.files("spent")
        )
        journal = options.file(index, "journal")
        self._journal = None if journal is None else Journal(journal, options.files("journal"))
        counts = None if options.folder is None else options.folder / f"{options.port}.routes"
        self._router = Router(options.route, counts) if options.route else None
        self.sessions = SessionCore(
            make_actor,
            limits=options.sessions,
            journal=self._journal,
            observer=observer,
            route=self._router,
            stateless_route=Router(options.route) if options.route else None,  # the shares of sessions are exact
            spend=self.auth.spend_start if self.auth.has_secret else None,
        )
        self.metrics = StepMetrics()
        self.http = HttpDoor()
        self.grpc = _grpc_door(options, size)
        self._doors: tuple[Door, ...] = (self.http, *([] if self.grpc is None else [self.grpc]), *doors)
        self._ring: Ring | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self.num_turns = 0  # counted up while the event loop turns
        self.is_ready = False
        is_plain = size == 1 and not self.auth.has_secret  # a step needs no look before it is run
        self.step: Callable[[Step, Done], None] = self.sessions.step if is_plain else self._route

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the doors. Raises `OSError` if the port is taken."""
        options = self.options
        if self.size > 1:
            self._ring = Ring(
                self.index,
                self.size,
                folder=options.runtime_folder,
                journals=lambda: options.files("journal"),
                answer_ask=self.answer_ask,
            )
            await self._ring.start(self.sessions, self.auth)
        opened: list[Door] = []
        try:
            for door in self._doors:
                await door.open(self)
                opened.append(door)
        except BaseException:
            for door in opened:
                await door.close()
            if self._ring is not None:
                await self._ring.close()
            raise
        self.port = self.http.port
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        self.is_ready = True

    async def stop(self, grace_s: float = 5.0) -> None:
        """Take no more sessions, end those that live, answer what runs, hang up."""
        self.is_ready = False
        await self.sessions.leave(grace_s)
        if self._sweeper is not None:
            self._sweeper.cancel()
        for door in self._doors:
            await door.close()
        if self._ring is not None:
            await self._ring.close()
        if self._journal is not None:
            self._journal.close()
        self.auth.close()

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
                for door in self._doors:
                    door.sweep(now - held_up_s)  # what games sent in that time is still to be read
            except Exception:
                _LOG.exception("sweeping failed; it goes on")

    @property
    def grpc_port(self) -> int | None:
        """That of the gRPC door, if there is one."""
        return None if self.grpc is None else self.grpc.port

    # -- steps ----------------------------------------------------------------------------------------------------

    def _route(self, step: Step, done: Done) -> None:
        """Have the step run by the worker that it belongs to; a stateless one by any, if signed by a certain one."""
        owner = self._owner_of(step.session or step.signature)
        if owner != self.index and self._ring is not None:
            self._ring.forward(owner, step, done)
            return
        refused = self.auth.use(step)
        if refused is not None:
            done(refused)
        else:
            self.sessions.step(step, done)

    def _owner_of(self, name: str) -> int:
        return owner_of(name, self.size) if name else self.index

    def may_hold(self, session: str) -> bool:
        """Whether a session is live here, or belongs to another worker."""
        return self.sessions.find(session) is not None or self._owner_of(session) != self.index

    async def spend(self, signature: str) -> Outcome | None:
        """Have a signature spent by the worker that it belongs to, as `_route` does with stateless ticks."""
        owner = self._owner_of(signature)
        if self._ring is None or owner == self.index:
            return self.auth.use(Step(None, "", b"", signature=signature))
        detail = await self._ring.ask(owner, _SPEND + signature)
        if detail is None:
            detail = "the worker that knows whether this signature was used is being started again"
            return Outcome.refused("overloaded", detail, retry_after_s=1)
        return Outcome.refused("replayed", detail) if detail else None

    # -- what it tells ----------------------------------------------------------------------------------------------

    async def ask_all(self, what: str) -> dict[int, Any]:
        """What each worker says of its `sessions` or `metrics`."""
        return await self._ring.ask_all(what) if self._ring is not None else {self.index: self.answer_ask(what)}

    def answer_ask(self, what: str) -> Any:
        """What the other workers want to know of this one."""
        if what.startswith(_SPEND):
            refused = self.auth.use(Step(None, "", b"", signature=what.removeprefix(_SPEND)))
            return "" if refused is None else refused.detail
        return list(self.sessions.describe()) if what == "sessions" else self.stats()

    def look(self, most: int) -> dict[str, Any]:
        """The newest sessions, and what those that begin play: shares by tag, and how many each was given."""
        return {
            **self.sessions.looks.newest(most),
            "shares": dict(self.options.route),
            "given": self._router.counts() if self._router is not None else {},
        }

    def stats(self) -> dict[str, Any]:
        """All counters, as plain data."""
        stats = self.sessions.stats
        return {
            "steps": self.metrics.to_json(),
            "num_sessions": len(self.sessions),
            "num_waiting": self.sessions.num_waiting,
            "num_forwarded": self._ring.num_forwarded if self._ring is not None else 0,
            "num_started": stats.num_started,
            "num_steps": stats.num_steps,
            "num_repeats": stats.num_repeats,
            "num_fallbacks": stats.num_fallbacks,
            "num_unwritten": self.sessions.num_unwritten,
            "ended": dict(stats.ended),
            **asdict(self.http.stats),
            **({"num_grpc_calls": 0, "num_grpc_streams": 0} if self.grpc is None else self.grpc.stats()),
        }


def _grpc_door(options: GatewayOptions, size: int) -> GrpcDoor | None:
    """Raises `MissingExtra` if the library is not there."""
    if options.grpc_port is None:
        return None
    if size > 1 and not options.grpc_port:
        raise errors.ConfigError("several workers share one gRPC port, so it must be given; 0 would be one for each")
    from ludus.gateway.grpc.door import GrpcDoor  # it brings grpc, and its threads

    return GrpcDoor()
