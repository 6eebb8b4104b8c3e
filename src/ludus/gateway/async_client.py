"""The game's side of the protocol for an event loop: `AsyncGameClient`, as lean as the load generator needs it.

game = AsyncGameClient("http://127.0.0.1:8000", "session-1")
await game.start(b"map 7")
action = await game.tick(observation)
await game.end()
game.close()
"""

from __future__ import annotations

import asyncio
import functools
import re
import ssl
from typing import Any, cast

from ludus.gateway.client import MAX_ANSWER_BYTES, MAX_HEAD_BYTES, Course, GameError, Place, Retries, too_large

__all__ = ["AsyncGameClient", "Response"]

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
_HEADER = rb"\r\n%b:[ \t]*([^\r]*)"
_END = b"\r\n\r\n"


class Response:
    """One answer: its status, its head as it came, its body."""

    __slots__ = ("body", "head", "status")

    def __init__(self, status: int, head: bytes, body: bytes) -> None:
        self.status = status
        self.head = head
        self.body = body

    def header(self, name: str) -> str | None:
        found = re.search(_HEADER % re.escape(name.encode()), self.head, re.IGNORECASE)
        return found[1].decode("latin-1").strip() if found is not None else None


class _Wire(asyncio.Protocol):
    """A connection with one request under way at a time."""

    def __init__(self, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._max_answer_bytes = max_answer_bytes
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._answer: asyncio.Future[Response] | None = None
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("the server hung up"))

    def ask(self, request: bytes, answer: asyncio.Future[Response]) -> None:
        assert self._transport is not None
        self._answer = answer
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.done():  # nobody asked: what comes now must not be taken for the next answer
            self.close()
            return
        buffer = self._buffer = self._buffer + data if self._buffer else data
        end = buffer.find(_END)
        if end < 0:
            if len(buffer) > MAX_HEAD_BYTES:
                self._refuse(answer, ConnectionError("the headers of this answer do not end"))
            return
        head = buffer[:end]
        length = _LENGTH.search(head)
        if length is None or not head[9:12].isdigit():
            self._refuse(answer, ConnectionError("this answer has no content-length, or is not HTTP/1.1"))
            return
        if len(length[1]) > 18 or int(length[1]) > self._max_answer_bytes:
            self._refuse(answer, too_large(self._max_answer_bytes, int(head[9:12])))
            return
        total = end + 4 + int(length[1])
        if len(buffer) < total:
            return
        self._buffer = b""
        self._answer = None
        if len(buffer) > total or _CLOSE.search(head) is not None:
            self.close()
        answer.set_result(Response(int(head[9:12]), head, buffer[end + 4 : total]))

    def _refuse(self, answer: asyncio.Future[Response], error: Exception) -> None:
        self.close()
        answer.set_exception(error)

    def close(self) -> None:
        """Hang up, also in the middle of a request."""
        self.is_open = False
        if self._transport is not None:
            if self._transport.get_write_buffer_size():
                self._transport.abort()  # what is not sent yet is not to be sent any more
            else:
                self._transport.close()


class AsyncGameClient:
    """`GameClient` with coroutines, and the same meaning of every argument. One step at a time."""

    def __init__(
        self,
        url: str,
        session: str | None = None,
        *,
        run: str | None = None,
        numbered: bool = True,
        timeout_s: float | None = 10.0,
        retries: int = 5,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        token: str | None = None,
        secret: str | None = None,
        key: str = "game",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._place = Place(url)
        self._course = Course(session, run=run, numbered=numbered, token=token, secret=secret, key=key)
        self._is_plain = secret is None
        self._timeout_s = timeout_s
        self._retries = retries
        self._max_answer_bytes = max_answer_bytes
        self._context = context
        self._wire: _Wire | None = None
        self._line = f"POST {self._place.path} HTTP/1.1\r\nhost: {self._place.authority}\r\n"
        self._token = token
        self._tick_head = b""
        self.num_retries = 0

    @property
    def session(self) -> str:
        return self._course.session

    @property
    def versions(self) -> dict[str, int]:
        return dict(self._course.versions)

    async def start(self, data: bytes = b"", model: str | None = None, version: int | str | None = None) -> bytes:
        self._course.begin()
        self._tick_head = self._make_tick_head()
        return await self._step("start", data, model=model, version=version)

    async def tick(self, data: bytes, deadline_ms: int | None = None) -> bytes:
        if deadline_ms is None:
            return await self._step("tick", data)
        return await self._step("tick", data, deadline_ms=deadline_ms)

    async def end(self, data: bytes = b"") -> bytes:
        return await self._step("end", data)

    async def stateless(self, data: bytes, deadline_ms: int | None = None) -> bytes:
        return await self._step(None, data, deadline_ms=deadline_ms)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _make_tick_head(self) -> bytes:
        """What all ticks of a session have in common, up to the step's number; a signature leaves nothing in common."""
        if not self._is_plain:
            return b""
        authorization = f"authorization: Bearer {self._token}\r\n" if self._token is not None else ""
        return f"{self._line}{authorization}session: {self.session}\r\nstep_kind: tick\r\n".encode()

    def _request(self, kind: str | None, data: bytes, extras: dict[str, Any]) -> bytes:
        course = self._course
        if kind == "tick" and self._tick_head and not extras:
            if course.numbered:
                return b"%bstep: %d\r\ncontent-length: %d\r\n\r\n%b" % (
                    self._tick_head, course.number, len(data), data,
                )  # fmt: skip
            return b"%bcontent-length: %d\r\n\r\n%b" % (self._tick_head, len(data), data)
        headers = course.headers(kind, data, **extras)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{self._line}{lines}content-length: {len(data)}\r\n\r\n".encode() + data

    async def _step(self, kind: str | None, data: bytes, **extras: Any) -> bytes:
        course = self._course
        retries: Retries | None = None
        if course.doubted is not None and kind is not None:
            course.next()
        while True:
            was_sent = False
            try:
                wire = self._wire
                if wire is None or not wire.is_open:
                    wire = await self._connect()
                request = self._request(kind, data, extras)
                was_sent = True
                response = await self._ask(wire, request)
            except BaseException as error:
                self.close()  # an answer that is still to come is none to the next step
                if was_sent:
                    course.lose(kind)
                if not isinstance(error, OSError):
                    raise
                retries = retries or self._new_retries(kind)
                await asyncio.sleep(retries.after_break(error, self._place, was_sent=was_sent))
                self.num_retries += 1
                continue
            if response.status == 200:
                if kind is not None:
                    course.number += 1
                    if course.doubted is not None:
                        course.settle()
                    if b"\r\nversion:" in response.head:
                        course.succeeded(None, response.header("version"))
                return response.body
            problem = GameError.from_answer(response.status, response.body)
            if course.refused(kind, problem):
                continue
            retries = retries or self._new_retries(kind)
            await asyncio.sleep(retries.after_problem(problem, response.header("retry-after")))
            self.num_retries += 1

    def _new_retries(self, kind: str | None) -> Retries:
        return Retries(self._retries, may_repeat=self._course.numbered and kind is not None)

    async def _ask(self, wire: _Wire, request: bytes) -> Response:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        wire.ask(request, answer)
        if self._timeout_s is None:
            return await answer
        timer = loop.call_later(self._timeout_s, _time_out, answer, self._timeout_s)
        try:
            return await answer
        finally:
            timer.cancel()

    async def _connect(self) -> _Wire:
        place = self._place
        context = (self._context or ssl.create_default_context()) if place.is_tls else None
        make = functools.partial(_Wire, self._max_answer_bytes)
        making = asyncio.get_running_loop().create_connection(make, place.host, place.port, ssl=context)
        _, wire = await asyncio.wait_for(making, self._timeout_s)
        self._wire = wire
        return wire


def _time_out(answer: asyncio.Future[Response], timeout_s: float) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError(f"no answer after {timeout_s:g} s"))
