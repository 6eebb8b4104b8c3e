"""One connection of a game: requests are read as they come and answered in that order.

The way of a tick: `data_received` → httptools → `on_message_complete` → `Step` → the gateway → `_write`. Nothing is
scheduled on it for an actor whose method is an ordinary one.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol, cast

import httptools

from ludus.gateway.http.outbox import Outbox
from ludus.gateway.metrics import StepMetrics
from ludus.gateway.step import Answer, problem

__all__ = ["Connection", "Handler", "HttpLimits", "HttpStatistics", "Request"]

_LOG = logging.getLogger(__name__)
_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    409: b"Conflict",
    410: b"Gone",
    413: b"Content Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}
_LINGER_S = 2.0  # for which what a game still sends is thrown away, so that it gets to read why it was refused
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: "


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    max_header_bytes: int = 16 * 1024
    max_headers: int = 64
    max_body_bytes: int = 16 * 1024 * 1024
    request_s: float = 10.0  # from the first byte of a request to its last
    idle_s: float = 120.0  # without a request
    max_connections: int = 10_000
    max_pipelined: int = 64
    max_unsent_bytes: int = 64 * 1024 * 1024  # of answers that the game does not read


@dataclass(kw_only=True)
class HttpStatistics:
    num_connections: int = 0  # open now
    num_accepted: int = 0
    num_refused: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Request:
    """One request, read whole; called with its answer, it sends that. Names of headers are in lower case."""

    __slots__ = ("arrived", "body", "connection", "headers", "keep_alive", "kind", "method", "path")

    def __init__(
        self,
        connection: Connection,
        method: bytes,
        path: bytes,
        headers: Mapping[bytes, bytes],
        body: bytes,
        arrived: float,
        keep_alive: bool,
    ) -> None:
        self.connection = connection
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.arrived = arrived
        self.keep_alive = keep_alive
        self.kind: str | None = None  # of a step, once it is known

    def __call__(self, answer: Answer) -> None:
        """Count the step, and send its answer."""
        connection = self.connection
        connection.metrics.add(self.kind or "stateless", answer.code, monotonic() - self.arrived)
        connection.answer(self, answer)


class Handler(Protocol):
    """What answers requests, at once or later, once."""

    def handle(self, request: Request) -> None: ...

    def refuse(self, answer: Answer) -> None:
        """A request was refused before it could be handled: to be counted."""
        ...


class Connection(asyncio.Protocol):
    def __init__(
        self,
        handler: Handler,
        limits: HttpLimits,
        statistics: HttpStatistics,
        open_connections: set[Connection],
        outbox: Outbox,
        metrics: StepMetrics,
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._statistics = statistics
        self._open = open_connections
        self._outbox = outbox
        self.metrics = metrics
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._parser: Any = None
        self._pending: deque[Request] = deque()  # read, and not answered or not sent yet, in order
        self._is_closing = False  # nothing is answered any more
        self._is_deaf = False  # nothing is read any more
        self._is_paused = False
        self._is_half_closed = False  # the game sends nothing more, and waits for answers
        self._refusal: Answer | None = None  # that comes after the answers to what was asked before
        self._is_unusual = False  # something is to be done after the last answer: one of the three above
        self._is_writable = True
        self.began = 0.0  # when the request that is being read began; 0 between requests
        self.touched = monotonic()
        self._header_bytes = 0
        self._in_headers = True
        self._path = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated: list[bytes] = []  # names that were there already
        self._body = b""
        self._parts: list[bytes] = []  # of a body that came in several
        self._body_bytes = 0
        self._chunked: dict[bytes, bytes] | None = None  # the headers, while a body comes in chunks
        self._chunked_bytes = 0  # of such a body, and of all that is around it

    # -- the transport's calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        statistics = self._statistics
        if len(self._open) >= self._limits.max_connections:
            statistics.num_refused += 1
            self._is_closing = self._is_deaf = True
            self._transport.write(_response(problem("overloaded", "too many connections", headers=_RETRY), False))
            self._transport.close()
            return
        statistics.num_accepted += 1
        statistics.num_connections += 1
        self._open.add(self)
        self._transport.set_write_buffer_limits(high=1024 * 1024)
        self._parser = httptools.HttpRequestParser(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = self._is_deaf = True
        self._pending.clear()
        self._parser = None
        if self in self._open:
            self._open.discard(self)
            self._statistics.num_connections -= 1

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        now = self.touched = monotonic()
        if not self.began and data != b"\r\n":  # an empty line before a request is none
            self.began = now
        self._statistics.bytes_in += len(data)
        if self._in_headers:
            self._header_bytes += len(data)
        elif self._chunked is not None:
            self._chunked_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            if not self._is_deaf:  # our own callbacks raise to stop it
                if not self.began and self._pending:  # it was read whole, and then failed
                    self._pending.pop()
                self.refuse(_failure())
        except httptools.HttpParserError as error:
            if not self._is_deaf:
                self.refuse(problem("bad_request", f"this is not HTTP/1.1: {error}"))
        if self.began:
            self._check_part()

    def _check_part(self) -> None:
        """Refuse what is not whole yet, and too large already: headers, or what is around a body in chunks."""
        most = self._limits.max_header_bytes
        if self._in_headers and self._header_bytes > most:
            self.refuse(problem("too_large", f"headers may have {most} bytes"))
        elif self._chunked is not None and self._chunked_bytes > most + 8 * self._body_bytes:
            self.refuse(problem("too_large", f"beside a body in chunks there may be {most} bytes"))

    def pause_writing(self) -> None:
        self._is_writable = False
        self._pause()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._resume()

    def eof_received(self) -> bool:
        if not self._pending:
            return False
        self._is_half_closed = self._is_unusual = True  # what was asked is still answered
        return True

    # -- the parser's calls ---------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        """The first of a request; a long one comes in several parts."""
        if not self.began:
            self.began = self.touched
        self._path = self._path + url if self._path else url
        if len(self._path) > self._limits.max_header_bytes:
            self._stop(problem("too_large", "the path is too long"))

    def on_header(self, name: bytes, value: bytes) -> None:
        name = _LOWER.get(name) or name.lower()
        headers = self._headers
        if name in headers:
            self._repeated.append(name)
        headers[name] = value

    def on_headers_complete(self) -> None:
        self._in_headers = False
        received, self._header_bytes = self._header_bytes, 0  # as many bytes as they can have at most
        headers = self._headers
        if self._repeated or len(headers) > 8 or received > self._limits.max_header_bytes:
            self._check_headers(headers)
        length = headers.get(b"content-length")
        if length is not None and len(length) > 6 and int(length[:20]) > self._limits.max_body_bytes:
            self._stop(problem("too_large", f"a body may have {self._limits.max_body_bytes} bytes"))
        if b"transfer-encoding" in headers:
            self._chunked, self._headers = headers, {}  # what comes behind the body is no header
            self._chunked_bytes = 0
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            self._outbox.send(self._transport, b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_headers(self, headers: dict[bytes, bytes]) -> None:
        """Refuse too many headers, too large ones, and those that may be there only once."""
        limits = self._limits
        if len(headers) + len(self._repeated) > limits.max_headers:
            self._stop(problem("too_large", f"more than {limits.max_headers} headers"))
        if len(b"".join((*headers, *headers.values()))) + 4 * len(headers) > limits.max_header_bytes:
            self._stop(problem("too_large", f"headers may have {limits.max_header_bytes} bytes"))
        twice = next((name for name in self._repeated if name in _ONCE), None)
        self._repeated = []
        if twice is not None:
            self._stop(problem("bad_request", f"the header {twice.decode()} is there twice"))

    def _decline_upgrade(self, rest: bytes) -> None:
        """Go on in HTTP/1.1 with a request that offered to change to something else.

        The parser stops after its headers, so a new one is given them without the offer.
        """
        method, path, headers = self._parser.get_method(), self._path, self._chunked or self._headers
        if method == b"CONNECT":
            self.refuse(problem("bad_request", "this is no proxy"))
            return
        closes = b"close" in headers.get(b"connection", b"").lower()
        lines = [b"%b: %b" % item for item in headers.items() if item[0] not in (b"upgrade", b"connection")]
        lines += [b"connection: close"] if closes else []
        first = b"%b %b HTTP/%b" % (method, path, self._parser.get_http_version().encode())
        self._parser = httptools.HttpRequestParser(self)
        self._path, self._headers, self._chunked, self._in_headers = b"", {}, None, True
        again = b"\r\n".join([first, *lines, b"", rest])
        self._statistics.bytes_in -= len(again)
        self.data_received(again)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.max_body_bytes:
            self._stop(problem("too_large", f"a body may have {self._limits.max_body_bytes} bytes"))
        if self._body_bytes == len(body):
            self._body = body
            return
        if self._body:
            self._parts = [self._body]
            self._body = b""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        parser, body, headers = self._parser, self._body, self._headers
        if self._chunked is not None:
            headers, self._chunked, self._repeated = self._chunked, None, []
        method = parser.get_method()
        if (b"upgrade" in headers or method == b"CONNECT") and parser.should_upgrade():
            return  # this was only its head: see `_decline_upgrade`
        self._in_headers = True
        if self._parts:
            body = b"".join(self._parts)
            self._parts = []
        request = Request(self, method, self._path, headers, body, self.began, parser.should_keep_alive())
        self.began = 0.0
        self._path = self._body = b""  # of the next one
        self._headers = {}
        self._body_bytes = 0
        pending = self._pending
        pending.append(request)
        if len(pending) == 1:
            self._handler.handle(request)
        elif len(pending) >= self._limits.max_pipelined:
            self._pause()

    # -- answers --------------------------------------------------------------------------------------------------

    def answer(self, request: Request, answer: Answer) -> None:
        """Send the answer to a request; the next that was read meanwhile is handled then."""
        pending = self._pending
        if self._is_closing or not pending or pending[0] is not request:
            return  # the game is gone
        pending.popleft()
        if answer.code or answer.headers or not request.keep_alive or request.method == b"HEAD":
            self._write(answer, request.keep_alive, is_head=request.method == b"HEAD")
        else:
            body = answer.body
            data = b"%b%d\r\n\r\n%b" % (answer.head or _OK, len(body), body)
            self._statistics.bytes_out += len(data)
            self._outbox.send(self._transport, data)
            if not self._is_writable:
                self._check_unsent()
        if pending and not self._is_closing:
            asyncio.get_running_loop().call_soon(self._handle_next)
        elif self._is_unusual:
            self._after_last()

    def _after_last(self) -> None:
        """All that was asked is answered."""
        if self._refusal is not None:
            self._send_refusal(self._refusal)
        elif self._is_half_closed:
            self._hang_up()
        else:
            self._resume()

    def _handle_next(self) -> None:
        if self._pending and not self._is_closing:
            request = self._pending[0]
            try:
                self._handler.handle(request)
            except Exception:
                self.answer(request, _failure())

    def _write(self, answer: Answer, keep_alive: bool, *, is_head: bool = False) -> None:
        data = _response(answer, keep_alive)
        if is_head:
            data = data[: len(data) - len(answer.body)]
        self._statistics.bytes_out += len(data)
        self._outbox.send(self._transport, data)
        if not keep_alive:
            self._hang_up()
        elif not self._is_writable:
            self._check_unsent()

    def _check_unsent(self) -> None:
        """Cut off a game that asks and does not read the answers."""
        if self._transport.get_write_buffer_size() > self._limits.max_unsent_bytes:
            self.abort()

    def refuse(self, answer: Answer) -> None:
        """Answer what cannot be read any further, and hang up."""
        if self._is_deaf:
            return
        self._is_deaf = True
        self._handler.refuse(answer)
        if self._pending:
            self._refusal, self._is_unusual = answer, True
        else:
            self._send_refusal(answer)

    def _send_refusal(self, answer: Answer) -> None:
        """The last that is sent. Hanging up at once, while the game sends, would take the answer from it."""
        self._is_closing = True
        data = _response(answer, False)
        self._statistics.bytes_out += len(data)
        self._outbox.send(self._transport, data)
        self._outbox.flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER_S, self._transport.abort)
        else:  # TLS, whose end cannot be told apart from its connection's
            self._transport.close()

    def _hang_up(self) -> None:
        """After what was sent has arrived."""
        self._is_closing = self._is_deaf = True
        self._outbox.flush()
        self._transport.close()

    def abort(self) -> None:
        self._is_closing = self._is_deaf = True
        self._transport.abort()

    def close_idle(self) -> None:
        """Hang up if no request is under way."""
        if not self._pending and not self._is_closing:
            self._hang_up()

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self.began

    def check(self, now: float) -> None:
        """Cut off those who are too slow, to be called about once a second."""
        if self.began and now - self.began > self._limits.request_s and not self._pending:
            self.refuse(problem("timeout", f"a request must arrive within {self._limits.request_s:g} s"))
        elif not self._is_writable and now - self.touched > self._limits.idle_s:
            self.abort()
        elif self.is_idle and now - self.touched > self._limits.idle_s:
            self.close_idle()

    def _stop(self, answer: Answer) -> None:
        """Refuse from within the parser, and have it read no further."""
        self.refuse(answer)
        raise ValueError(answer.code)

    def _pause(self) -> None:
        if not self._is_paused and not self._is_closing:
            self._is_paused = self._is_unusual = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and self._is_writable and len(self._pending) < self._limits.max_pipelined:
            self._is_paused = False
            self._is_unusual = self._is_half_closed or self._refusal is not None
            if not self._is_closing:
                self._transport.resume_reading()


_ONCE = frozenset(
    (
        b"session",
        b"game_id",
        b"game-id",
        b"step_kind",
        b"step-kind",
        b"step",
        b"run",
        b"content-length",
        b"time",
        b"token",
    )
)
_RETRY = {b"retry-after": b"1"}
_LOWER = {  # the usual spellings, so that most names need not be made lower
    name: name.lower()
    for name in (b"Host", b"host", b"Content-Length", b"content-length", b"session", b"step_kind", b"step", b"game_id")
}


def _failure() -> Answer:
    """What should not happen did: the game gets an id, under which the log has the traceback."""
    number = uuid.uuid4().hex[:16]
    _LOG.exception("a request failed, id %s", number)
    return problem("actor_failed", "the server failed; its log has more under the id", id=number)


def _response(answer: Answer, keep_alive: bool) -> bytes:
    """Any answer, written out; that of a tick that went well is quicker made from its session's head."""
    if answer.head:
        lines = [answer.head[: answer.head.rindex(b"\r\n")]]
    else:
        kind = answer.headers.get(b"content-type") or (
            b"application/problem+json" if answer.code else b"application/octet-stream"
        )
        status = b"HTTP/1.1 %d %b" % (answer.status, _REASONS.get(answer.status, b""))
        lines = [status, b"content-type: " + kind]
    lines += [b"%b: %b" % item for item in answer.headers.items() if item[0] != b"content-type"]
    lines.append(b"content-length: %d" % len(answer.body))
    if not keep_alive:
        lines.append(b"connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + answer.body
