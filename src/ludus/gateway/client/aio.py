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

from ludus.gateway.client.protocol import MAX_HEAD_BYTES, BaseGameClient, too_large

__all__ = ["AsyncGameClient", "Response"]

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
_HEADERS = {
    name: re.compile(rb"\r\n%b:[ \t]*([^\r]*)" % name.encode(), re.IGNORECASE) for name in ("version", "retry-after")
}
_END = b"\r\n\r\n"


class Response:
    """One answer: its status, its head as it came, its body."""

    __slots__ = ("body", "head", "status")

    def __init__(self, status: int, head: bytes, body: bytes) -> None:
        self.status = status
        self.head = head
        self.body = body

    def header(self, name: str) -> str | None:
        found = _HEADERS[name].search(self.head)
        return found[1].decode("latin-1").strip() if found is not None else None


class _Wire(asyncio.Protocol):
    """A connection with one request under way at a time."""

    def __init__(self, max_answer_bytes: int) -> None:
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


class AsyncGameClient(BaseGameClient):
    """`GameClient` with coroutines. One step at a time."""

    _wire: _Wire | None = None
    _tick_head = b""

    async def start(self, data: bytes = b"", model: str | None = None, version: int | str | None = None) -> bytes:
        self._course.begin()
        common = self._course.common_head
        self._tick_head = f"{self._place.line}{common}".encode() if common else b""
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
        return f"{self._place.line}{lines}content-length: {len(data)}\r\n\r\n".encode() + data

    async def _step(self, kind: str | None, data: bytes, **extras: Any) -> bytes:
        course = self._course
        course.step(kind, extras.get("deadline_ms"))
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
                    course.lose()
                if not isinstance(error, OSError):
                    raise
                await asyncio.sleep(course.broke(error, self._place, was_sent=was_sent))
                continue
            pause_s = course.answered(response.status, response.body, response.header)
            if pause_s is None:
                return response.body
            await asyncio.sleep(pause_s)

    async def _ask(self, wire: _Wire, request: bytes) -> Response:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        wire.ask(request, answer)
        timeout_s = self._course.time_for(self._timeout_s)
        if timeout_s is None:
            return await answer
        timer = loop.call_later(timeout_s, _time_out, answer, timeout_s)
        try:
            return await answer
        finally:
            timer.cancel()

    async def _connect(self) -> _Wire:
        place = self._place
        context = (self._context or ssl.create_default_context()) if place.is_tls else None
        make = functools.partial(_Wire, self._max_answer_bytes)
        making = asyncio.get_running_loop().create_connection(make, place.host, place.port, ssl=context)
        _, wire = await asyncio.wait_for(making, self._course.time_for(self._timeout_s))
        self._wire = wire
        return wire


def _time_out(answer: asyncio.Future[Response], timeout_s: float) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError(f"no answer after {timeout_s:g} s"))
