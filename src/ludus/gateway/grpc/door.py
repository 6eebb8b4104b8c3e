"""The gateway's gRPC door: the same sessions as HTTP's, by unary calls and by streams.

The way of a tick: grpc's own threads → `_unary` or `_play` → `wire.parse_step` → the gateway → `wire.reply_of`. An
actor whose method is an ordinary one answers before the first `await`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

from ludus.gateway.auth import Auth
from ludus.gateway.grpc import wire
from ludus.gateway.metrics import StepMetrics
from ludus.gateway.step import BadStep, Outcome
from ludus.grpc.library import EOF, DecodeError, StatusCode
from ludus.grpc.protos.game_pb2 import END, START, STATELESS, TICK, StepRequest
from ludus.grpc.server import GrpcLimits, GrpcOptions, GrpcServer, Refusal

if TYPE_CHECKING:
    from ludus.gateway.gateway import Gateway

__all__ = ["GrpcDoor"]

_LOG = logging.getLogger(__name__)
_METHODS = {"Start": START, "Tick": TICK, "End": END, "Stateless": STATELESS}
_FIELDS_BYTES = 64 * 1024  # of a message, beside its data
_LAST_ANSWERS_S = 0.5


class GrpcDoor:
    """Messages → steps, outcomes → messages."""

    _gateway: Gateway
    _auth: Auth
    _metrics: StepMetrics
    _server: GrpcServer
    _has_secret: bool

    def __init__(self) -> None:
        self._streams: set[_Stream] = set()
        self._idle_s = 0.0
        self._is_serving = True
        self._saying: asyncio.Task[None] | None = None

    # -- life -----------------------------------------------------------------------------------------------------

    async def open(self, gateway: Gateway) -> None:
        """Listen. Raises `OSError` if the port is taken."""
        options = gateway.options
        self._gateway, self._auth, self._metrics = gateway, gateway.auth, gateway.metrics
        self._has_secret = gateway.auth.has_secret
        self._idle_s = options.http.idle_s
        limits = GrpcLimits(
            max_message_bytes=options.http.max_body_bytes + _FIELDS_BYTES,
            max_metadata_bytes=options.http.max_header_bytes,
            max_calls=options.http.max_connections,
            max_connections=options.http.max_connections,
            handshake_s=options.http.request_s,
        )
        listening = GrpcOptions(
            host=options.host,
            port=options.grpc_port or 0,
            tls_cert=options.tls_cert,
            tls_key=options.tls_key,
            is_shared=gateway.size > 1,
            limits=limits,
        )
        self._server = GrpcServer(listening, refuse=self._refuse if gateway.auth.is_on else None)
        self._server.add_raw(
            wire.SERVICE,
            {name: _Unary(self, kind).answer for name, kind in _METHODS.items()},
            {"Play": self._play},
        )
        await self._server.start()

    @property
    def port(self) -> int:
        return self._server.port

    def sweep(self, now: float) -> None:
        for stream in [stream for stream in self._streams if stream.is_reading and now - stream.touched > self._idle_s]:
            stream.end(f"there was no step for {self._idle_s:g} s")
        is_serving = self._gateway.is_ready and self._gateway.sessions.is_open
        if is_serving != self._is_serving and (self._saying is None or self._saying.done()):
            self._is_serving = is_serving
            saying = self._server.set_serving(wire.SERVICE, is_serving)
            self._saying = asyncio.get_running_loop().create_task(saying)

    async def close(self) -> None:
        """Answer what was asked, and hang up."""
        for stream in list(self._streams):
            if stream.is_reading:
                stream.end("the server is leaving")
        await self._server.stop(_LAST_ANSWERS_S)

    def stats(self) -> dict[str, int]:
        return {"num_grpc_calls": self._server.stats.num_calls, "num_grpc_streams": len(self._streams)}

    # -- steps ------------------------------------------------------------------------------------------------------

    def _refuse(self, metadata: Iterable[tuple[str, Any]]) -> Refusal | None:
        """Before a message is read: by the token. With a secret the message itself is signed."""
        if self._has_secret or self._has_token(metadata):
            return None
        refused = self._auth.check_head({})
        assert refused is not None
        self._metrics.add("none", refused.code, 0.0)
        _status, details, trailing = wire.status_of(refused)
        return Refusal(details, trailing)

    def _has_token(self, metadata: Iterable[tuple[str, Any]]) -> bool:
        given = next((value for key, value in metadata if key == "authorization"), "")
        return self._auth.check_token({b"authorization": given.encode()})

    def run(self, data: bytes, kind: int | None, context: Any) -> _Answer:
        """Have the step of a message run. Raises `DecodeError` if it is none."""
        answer = _Answer(self._metrics)
        request = StepRequest.FromString(data)
        try:
            step = wire.parse_step(request, kind)
        except BadStep as error:
            answer(Outcome.refused("bad_request", str(error)))
            return answer
        answer.kind = step.kind or "stateless"
        try:
            if self._has_secret and not self._has_token(context.invocation_metadata()):
                refused = self._auth.check(wire.signed_fields(request, step), step)
                if refused is not None:
                    answer(refused)
                    return answer
            self._gateway.step(step, answer)
        except Exception:
            number = uuid.uuid4().hex[:16]
            _LOG.exception("a step failed, id %s", number)
            answer(Outcome.refused("server_failed", "the server failed; its log has more under the id", id=number))
        return answer

    async def _play(self, context: Any) -> None:
        """Steps one after another. The next message is read when the one before it is answered, and others wait."""
        stream = _Stream(asyncio.current_task())
        self._streams.add(stream)
        read, write = context.read, context.write
        try:
            while True:
                stream.is_reading = True
                data = await read()
                stream.is_reading = False
                if data is EOF:
                    return
                stream.touched = monotonic()
                answer = self.run(data, None, context)
                if answer.outcome is None:
                    await answer.wait()
                assert answer.outcome is not None
                await write(wire.reply_of(answer.outcome))
        except DecodeError as error:
            await self.refuse_bytes(context, error)
        except asyncio.CancelledError:
            if not stream.why:
                raise
            _uncancel()
            await context.abort(StatusCode.UNAVAILABLE, stream.why)
        finally:
            self._streams.discard(stream)

    async def refuse_bytes(self, context: Any, error: Exception) -> None:
        """What came is no message."""
        outcome = Outcome.refused("bad_request", f"this is no StepRequest: {error}")
        self._metrics.add("none", outcome.code, 0.0)
        await context.abort(*wire.status_of(outcome))


class _Unary:
    """One method of the service."""

    def __init__(self, door: GrpcDoor, kind: int) -> None:
        self._door = door
        self._kind = kind

    async def answer(self, data: bytes, context: Any) -> bytes:
        door = self._door
        try:
            answer = door.run(data, self._kind, context)
        except DecodeError as error:
            await door.refuse_bytes(context, error)
            raise
        if answer.outcome is None:
            await answer.wait()
        outcome = answer.outcome
        assert outcome is not None
        if outcome.code:
            await context.abort(*wire.status_of(outcome))
        return wire.reply_of(outcome)


class _Answer:
    """The outcome of one step, when it is there. It is counted then, also if nobody waits for it any more."""

    __slots__ = ("_arrived", "_metrics", "_waiter", "kind", "outcome")

    def __init__(self, metrics: StepMetrics) -> None:
        self.outcome: Outcome | None = None
        self.kind = "none"
        self._metrics = metrics
        self._arrived = monotonic()
        self._waiter: asyncio.Future[None] | None = None

    def __call__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._metrics.add(self.kind, outcome.code, monotonic() - self._arrived)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


class _Stream:
    """One that is open."""

    __slots__ = ("_task", "is_reading", "touched", "why")

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        assert task is not None
        self._task = task
        self.touched = monotonic()
        self.is_reading = False  # nothing is asked
        self.why = ""  # it is ended by us

    def end(self, why: str) -> None:
        self.why = why
        self._task.cancel()


def _uncancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
