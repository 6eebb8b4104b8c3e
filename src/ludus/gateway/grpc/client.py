"""The game's side of the protocol over gRPC. docs/protocol.md has the words.

with GrpcGameClient("grpc://127.0.0.1:8001", "session-1") as game:
    game.start(b"map 7")
    action = game.tick(observation)
    game.end(b"won")

The clients of HTTP and these number, repeat and give up alike: all have a `Course`. `AsyncGrpcGameClient` sends its
steps by one stream, which takes less time than a call each.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Self

from ludus import errors
from ludus.gateway.client.protocol import BaseGameClient, GameError
from ludus.gateway.grpc.fields import METHODS, error_of, problem_in, request_of
from ludus.grpc import status
from ludus.grpc.address import GrpcAddress
from ludus.grpc.channel import bearer, open_async_channel, open_channel
from ludus.grpc.library import EOF, RpcError
from ludus.grpc.protos.game_pb2_grpc import GameServiceStub

__all__ = ["AsyncGrpcGameClient", "GrpcGameClient"]

_make_stub: Any = GameServiceStub  # generated, without types


class _GrpcGame(BaseGameClient):
    """What both have in common. `ca`: a file of certificates that are trusted, if not those of the system."""

    _place_of = GrpcAddress

    def __init__(self, url: str, session: str | None = None, *, ca: str | Path | None = None, **options: Any) -> None:
        super().__init__(url, session, **options)
        self._ca = ca
        self._metadata = bearer(options.get("token"))
        self._channel: Any = None
        self._stub: Any = None

    def _request(self, kind: str | None, data: bytes, extras: dict[str, Any]) -> Any:
        return request_of(self._course.headers(kind, data, **extras), data)

    def _done(self, reply: Any) -> None:
        self._course.done(reply.versions)

    def _refused(self, problem: Any) -> float:
        return self._course.refused(error_of(problem), problem.retry_after_s)

    def _broke(self, error: Any) -> float:
        """After a call that failed: when the step is to be sent again; else raises what is known of it."""
        problem = problem_in(error.trailing_metadata() or ())
        if problem is not None:
            return self._refused(problem)
        known = status.error_of(error, where=self._place)
        if isinstance(known, errors.Overloaded):  # by grpc itself, before the step was seen
            return self._course.refused(GameError("overloaded", 503, str(known)), 0.0)
        if isinstance(known, errors.Unreachable):
            return self._course.broke(ConnectionError(error.details()), self._place, was_sent=False)
        self._course.lose()
        if isinstance(known, errors.OutcomeUnknown | errors.DeadlineExceeded):
            return self._course.broke(known, self._place, was_sent=True)
        raise known


class GrpcGameClient(_GrpcGame):
    """`GameClient` over gRPC: one unary call for each step. Not to be shared between threads."""

    def start(self, data: bytes = b"", model: str | None = None, version: int | str | None = None) -> bytes:
        """Begin a session; `version` says what to play: a number, a tag, `latest` or `follow`."""
        self._course.begin()
        return self._step("start", data, model=model, version=version)

    def tick(self, data: bytes, deadline_ms: int | None = None) -> bytes:
        """One step: what the actor answers."""
        return self._step("tick", data, deadline_ms=deadline_ms)

    def end(self, data: bytes = b"") -> bytes:
        """The session is over."""
        return self._step("end", data)

    def stateless(self, data: bytes, deadline_ms: int | None = None) -> bytes:
        """A tick of no session, on the actor that all such ticks share."""
        return self._step(None, data, deadline_ms=deadline_ms)

    def close(self) -> None:
        """Hang up. The session stays; its lease runs out if no more steps come."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _step(self, kind: str | None, data: bytes, **extras: Any) -> bytes:
        course = self._course
        course.step(kind, extras.get("deadline_ms"))
        if self._channel is None:
            self._channel = open_channel(self._place, ca=self._ca, max_message_bytes=self._max_answer_bytes)
            self._stub = _make_stub(self._channel)
        while True:
            request = self._request(kind, data, extras)
            method = getattr(self._stub, METHODS[request.kind])
            try:
                reply = method(request, timeout=course.time_for(self._timeout_s), metadata=self._metadata)
            except RpcError as error:
                time.sleep(self._broke(error))
                continue
            except BaseException:
                course.lose()
                raise
            self._done(reply)
            answer: bytes = reply.data
            return answer


class AsyncGrpcGameClient(_GrpcGame):
    """With coroutines, by a stream. One step at a time."""

    _stream: Any = None

    async def start(self, data: bytes = b"", model: str | None = None, version: int | str | None = None) -> bytes:
        self._course.begin()
        return await self._step("start", data, model=model, version=version)

    async def tick(self, data: bytes, deadline_ms: int | None = None) -> bytes:
        return await self._step("tick", data, deadline_ms=deadline_ms)

    async def end(self, data: bytes = b"") -> bytes:
        return await self._step("end", data)

    async def stateless(self, data: bytes, deadline_ms: int | None = None) -> bytes:
        return await self._step(None, data, deadline_ms=deadline_ms)

    async def close(self) -> None:
        """Hang up. The session stays; its lease runs out if no more steps come."""
        self._cut()
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _cut(self) -> None:
        """An answer that is still to come is none to the next step."""
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    async def _step(self, kind: str | None, data: bytes, **extras: Any) -> bytes:
        course = self._course
        course.step(kind, extras.get("deadline_ms"))
        if self._channel is None:
            self._channel = open_async_channel(self._place, ca=self._ca, max_message_bytes=self._max_answer_bytes)
            self._stub = _make_stub(self._channel)
        while True:
            request = self._request(kind, data, extras)
            try:
                reply = await asyncio.wait_for(self._exchange(request), course.time_for(self._timeout_s))
            except RpcError as error:
                self._cut()
                await asyncio.sleep(self._broke(error))
                continue
            except BaseException as error:
                self._cut()
                course.lose()
                if not isinstance(error, OSError):  # a `TimeoutError` is one
                    raise
                await asyncio.sleep(course.broke(error, self._place, was_sent=True))
                continue
            if reply.HasField("problem"):
                await asyncio.sleep(self._refused(reply.problem))
                continue
            self._done(reply)
            answer: bytes = reply.data
            return answer

    async def _exchange(self, request: Any) -> Any:
        if self._stream is None:
            self._stream = self._stub.Play(metadata=self._metadata)
        await self._stream.write(request)
        reply = await self._stream.read()
        if reply is EOF:
            raise ConnectionResetError("the server has ended the stream")
        return reply
