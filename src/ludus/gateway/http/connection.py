"""One connection of a game: its requests are read as they come. `outbox.py` has the other half.

The way of a tick: `data_received` → httptools → `on_message_complete` → `HttpDoor.handle` → the gateway → `Request` →
`Answers.send`. Nothing is scheduled on it for an actor whose method is an ordinary one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, cast

import httptools

from ludus.gateway.http.head_rules import check_coding, check_headers, check_version
from ludus.gateway.http.outbox import CLOSE, KEEP, Answers, Request, failed
from ludus.gateway.http.wire import RETRY, Answer, problem, response

if TYPE_CHECKING:
    from ludus.gateway.http.door import HttpDoor

__all__ = ["Connection"]

_WHOLE = 16 * 1024  # bytes that are parsed at once; of more than that, only what others can wait for
_CHUNKS = 4 * 1024  # bytes of a body in chunks that are parsed at once
_TURN_S = 0.001  # after which other connections have their turn
_FREE_CHUNKS = 1024  # of a body, of any size; more than that must have `_MIN_CHUNK` bytes on average
_MIN_CHUNK = 64
_REQUEST_BYTES = 1024  # what a request takes beside its body
_FRAMING = (b"content-length", b"transfer-encoding")
_LOWER = {  # the usual spellings, so that most names need not be made lower
    name: name.lower()
    for name in (b"Host", b"host", b"Content-Length", b"content-length", b"session", b"step_kind", b"step", b"game_id")
}


class Connection(asyncio.Protocol):
    """The reading half, and the transport's protocol."""

    def __init__(self, door: HttpDoor) -> None:
        self._door = door
        self._limits = door.limits
        self._stats = door.stats
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._answers = Answers(self, door)
        self._pending = self._answers.pending
        self._parser: Any = None
        self._is_deaf = False  # nothing is read any more
        self._is_paused = False
        self._is_half_closed = False  # the game sends nothing more, and waits for answers
        self._owes_continue = False  # a 100, to be sent after the answers to what was asked before
        self.began = 0.0  # when the request that is being read began; 0 between requests
        self.touched = monotonic()
        self._unread = b""  # what was received and is parsed in a later turn, from `_at` on
        self._at = 0
        self._has_turn = False
        self.held_bytes = 0  # that this connection has added to the buffered bytes of all
        self._pending_bytes = 0  # of those, what belongs to `_pending`
        self._header_bytes = 0
        self._in_headers = True
        self._has_rare = door.checks_heads  # headers are to be looked at that most requests do not have
        self._host = b""  # the last that was found good
        self._method = b""
        self._path = b""
        self._headers: dict[bytes, bytes] = {}
        self._persistence = b""
        self._repeated: list[bytes] = []  # names that were there already
        self._refused: Answer | None = None  # why the request that is being read is not going to be run
        self._offers_upgrade = False  # the parser stops after the headers: see `_decline_upgrade`
        self._declined: tuple[bytes, bytes, dict[bytes, bytes], bytes] | None = None
        self._body = b""
        self._parts = bytearray()  # of a body that came in several
        self._num_parts = 0
        self._body_bytes = 0
        self._chunked: dict[bytes, bytes] | None = None  # the headers, while a body comes in chunks
        self._chunked_bytes = 0  # of such a body, and of all that is around it

    # -- the transport's calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._answers.transport = cast(asyncio.Transport, transport)
        stats = self._stats
        if len(self._door.connections) >= self._limits.max_connections:
            stats.num_refused += 1
            self._answers.is_closing = self._is_deaf = True
            self._transport.write(response(problem("overloaded", "too many connections", headers=RETRY), CLOSE))
            self._transport.close()
            return
        stats.num_accepted += 1
        stats.num_connections += 1
        self._door.connections.add(self)
        self._transport.set_write_buffer_limits(high=1024 * 1024)
        self._parser = httptools.HttpRequestParser(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._answers.is_closing = self._is_deaf = True
        self._pending.clear()
        self._pending_bytes = 0
        self._drop_input()
        self._parser = None
        del self._answers.connection  # they hold each other, and garbage is collected seldom
        if self in self._door.connections:
            self._door.connections.discard(self)
            self._stats.num_connections -= 1

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        now = self.touched = monotonic()
        if not self.began and data != b"\r\n":  # an empty line before a request is none
            self.began = now
        size = len(data)
        self._stats.bytes_in += size
        if size > _WHOLE or self._unread:
            self._unread, self._at = self._unread[self._at :] + data, 0
            self._go_on()
            return
        if self._in_headers:
            self._header_bytes += size
        elif self._chunked is not None:
            self._chunked_bytes += size
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._recover(error, data)
        if self.began:
            self._check_part()

    def _go_on(self) -> None:
        """Parse what was received, piece by piece, until it is all or other connections have waited long enough.

        The pieces end where requests do, so this stops after as many as may wait.
        """
        self._has_turn = False
        until = monotonic() + _TURN_S
        data = self._unread
        view = memoryview(data)
        while self._at < len(data) and not self._is_deaf and self._may_read:
            piece = view[self._at : self._at + self._piece_size(data, self._at)]
            self._at += len(piece)
            if self._in_headers:
                self._header_bytes += len(piece)
            elif self._chunked is not None:
                self._chunked_bytes += len(piece)
            try:
                self._parser.feed_data(piece)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                self._recover(error, piece)
            if self.began:
                self._check_part()
            if monotonic() > until:
                break
        if self._at >= len(data) or self._is_deaf:
            self._unread, self._at = b"", 0
        if self.held_bytes:
            self._charge()
        if self._unread:
            self._pause()
        self._resume()

    def _piece_size(self, data: bytes, at: int) -> int:
        """How much of `data` is parsed at once: headers to their end, or a body whose length is known."""
        if self._in_headers:
            end = data.find(b"\r\n\r\n", at, at + _WHOLE)
            return _WHOLE if end < 0 else end + 4 - at
        if self._chunked is not None:
            return _CHUNKS
        return max(1, int(self._headers.get(b"content-length", b"0")) - self._body_bytes)

    def _recover(self, error: Exception, data: bytes | memoryview) -> None:
        """The parser has stopped: at an offer to change the protocol, in a callback of ours, or at what is not HTTP."""
        while isinstance(error, httptools.HttpParserUpgrade):
            data = memoryview(data)[error.args[0] :]
            try:
                self._decline_upgrade()
                if not self._is_deaf:
                    self._parser.feed_data(data)
                return
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as next_error:
                error = next_error
        if self._is_deaf:  # our own callbacks raise to stop it
            return
        if isinstance(error, httptools.HttpParserCallbackError):
            if not self.began and self._pending:  # it was read whole, and then failed
                self._pending.pop()
            self.refuse(failed())
        elif str(error) == "Invalid HTTP version":
            self.refuse(problem("version_not_supported", "this server speaks HTTP/1.1 and HTTP/1.0"))
        else:
            self.refuse(problem("bad_request", f"this is not HTTP/1.1: {error}"))

    def _check_part(self) -> None:
        """Refuse what is not whole yet, and too large already or not going to be run; count what is kept of it."""
        most = self._limits.max_header_bytes
        if self._in_headers and self._header_bytes > most:
            self.refuse(problem("too_large", f"headers may have {most} bytes"))
        elif self._chunked is not None and self._chunked_bytes > most + 8 * self._body_bytes:
            self.refuse(problem("too_large", f"beside a body in chunks there may be {most} bytes"))
        elif self._refused is not None and not self._in_headers:
            self.refuse(self._refused)
        else:
            self._charge()

    def pause_writing(self) -> None:
        self._answers.is_writable = False
        self._pause()

    def resume_writing(self) -> None:
        self._answers.is_writable = True
        self._resume()

    def eof_received(self) -> bool:
        if not self._pending and not self._unread:
            self._door.outbox.flush()  # what was answered in this very turn
            return False
        self._is_half_closed = self._answers.is_unusual = True  # what was asked is still answered
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
        usual = _LOWER.get(name)
        if usual is None:
            usual = name.lower()
            self._has_rare = True
        headers = self._headers
        if usual in headers:
            self._repeated.append(usual)
        headers[usual] = value

    def on_headers_complete(self) -> None:
        """Without a header `connection`, only HTTP/1.1 is kept alive, so the version need not be asked for."""
        self._in_headers = False
        received, self._header_bytes = self._header_bytes, 0  # as many bytes as they can have at most
        headers, parser = self._headers, self._parser
        method = self._method = parser.get_method()
        keep_alive = parser.should_keep_alive()
        length = headers.get(b"content-length")
        if (
            self._has_rare
            or not keep_alive
            or method == b"CONNECT"
            or headers.get(b"host") != self._host
            or (length is not None and len(length) > 4)
            or self._repeated
            or received > self._limits.max_header_bytes
        ):
            self._check_head(received, keep_alive)
        else:
            self._persistence = b""

    def _check_head(self, received: int, keep_alive: bool) -> None:
        """Look at headers that are not the usual few of a small step."""
        self._has_rare = self._door.checks_heads
        self._owes_continue = False
        if self._declined is not None:  # it was looked at before: see `_decline_upgrade`
            self._method, self._path, self._headers, self._persistence = self._declined
            self._declined = None
            self._frame_body(self._headers, self._persistence == b"")
            return
        headers = self._headers
        if self._repeated or len(headers) > 8 or received > self._limits.max_header_bytes:
            self._stop_if(check_headers(headers, self._repeated, self._limits))
            self._repeated = []
        version = "1.1" if keep_alive and b"connection" not in headers else self._parser.get_http_version()
        if version != "1.1" or headers.get(b"host") != self._host:
            self._stop_if(check_version(version, headers))
            self._host = headers.get(b"host", self._host)
        self._persistence = CLOSE if not keep_alive else b"" if version == "1.1" else KEEP
        if self._method == b"CONNECT":
            self._stop(problem("bad_request", "this is no proxy"))
        length = headers.get(b"content-length", b"")
        if len(length) > 4 and int(length[:20]) > self._limits.max_body_bytes:
            self._stop(problem("too_large", f"a body may have {self._limits.max_body_bytes} bytes"))
        is_large = b"transfer-encoding" in headers or len(length) > 4
        if is_large or self._door.checks_heads:
            self._refused = self._door.check_head(self._method, self._path, headers, is_large=is_large)
            if self._refused is not None and is_large:
                self._stop(self._refused)
        if b"upgrade" in headers and self._parser.should_upgrade():
            self._offers_upgrade = True
        elif is_large or b"expect" in headers:
            self._frame_body(headers, version == "1.1")

    def _frame_body(self, headers: dict[bytes, bytes], can_continue: bool) -> None:
        """Prepare for a body in chunks or for a large one, and ask for it if the game waits to be asked."""
        length = headers.get(b"content-length", b"")
        coding = headers.get(b"transfer-encoding")
        if coding is not None:
            self._stop_if(check_coding(coding))
            self._chunked, self._headers = headers, {}  # what comes behind the body is no header
            self._chunked_bytes = 0
        elif not length.strip(b"0"):
            return
        expected = headers.get(b"expect")
        if expected is not None and expected.lower() == b"100-continue" and can_continue and self._refused is None:
            if self._pending:
                self._owes_continue = self._answers.is_unusual = True
            else:
                self._send_continue()

    def _send_continue(self) -> None:
        self._owes_continue = False
        self._door.outbox.send(self._transport, b"HTTP/1.1 100 Continue\r\n\r\n")

    def _decline_upgrade(self) -> None:
        """Go on in HTTP/1.1 with a request that offered to change to something else.

        The parser stops after its headers and does not read its body. A new one is made to: it is given only what says
        how long the body is, and what was read of the request stays as it is.
        """
        headers = self._headers
        lines = [b"POST / HTTP/1.1", b"not-usual: 1"]  # so that `_check_head` is called, which takes `_declined` back
        lines += [b"%b: %b" % (name, headers[name]) for name in _FRAMING if name in headers]
        lines += [b"connection: close"] if self._persistence == CLOSE else []
        self._offers_upgrade = False
        self._declined = self._method, self._path, headers, self._persistence
        self._path, self._headers, self._in_headers = b"", {}, True
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"\r\n".join([*lines, b"", b""]))

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.max_body_bytes:
            self._stop(problem("too_large", f"a body may have {self._limits.max_body_bytes} bytes"))
        if self._body_bytes == len(body):
            self._body = body
            return
        parts = self._parts
        if self._body:
            parts += self._body
            self._body = b""
            self._num_parts = 1
        parts += body
        self._num_parts += 1
        are_tiny = self._num_parts > _FREE_CHUNKS and len(parts) < _MIN_CHUNK * self._num_parts
        if are_tiny and self._chunked is not None:
            detail = f"of more than {_FREE_CHUNKS} chunks, each must have {_MIN_CHUNK} bytes on average"
            self._stop(problem("bad_request", detail))

    def on_message_complete(self) -> None:
        if self._offers_upgrade:
            return  # this was only its head
        body, headers = self._body, self._headers
        if self._chunked is not None:
            headers, self._chunked, self._repeated = self._chunked, None, []
            self._has_rare = self._door.checks_heads
        self._in_headers = True
        held_bytes = 0
        if self._parts:
            body = bytes(self._parts)
            self._parts = bytearray()
            held_bytes = len(body)
        persistence = self._persistence
        request = Request(
            self._answers, self._method, self._path, headers, body, self.began, persistence, self._refused
        )
        self.began = 0.0
        self._path = self._body = b""  # of the next one
        self._headers = {}
        self._body_bytes = 0
        self._refused = None
        pending = self._pending
        pending.append(request)
        if held_bytes or len(pending) > 1:
            request.held_bytes = held_bytes or len(body) + _REQUEST_BYTES
            self._pending_bytes += request.held_bytes
            self._charge()
        if len(pending) == 1:
            self._door.handle(request)
        elif len(pending) >= self._limits.max_pipelined:
            self._pause()
        if persistence == CLOSE and not self._is_deaf:
            self._is_deaf = True
            raise ValueError("this was the last request of the connection")

    # -- what is kept of requests ---------------------------------------------------------------------------------

    def _charge(self) -> None:
        """Count what this connection keeps of requests that are not answered; pause or refuse if that is too much.

        Half of the room is for everybody. The other half is for small requests, and for those that are preferred.
        """
        held = self._pending_bytes + self._body_bytes + self._header_bytes + len(self._unread) - self._at
        stats, limits = self._stats, self._limits
        grows = held > self.held_bytes
        stats.buffered_bytes += held - self.held_bytes
        self.held_bytes = held
        if not grows or self._is_deaf:
            return
        if self._pending and held > limits.max_pipelined_bytes:
            self._pause()
        if stats.buffered_bytes <= limits.max_buffered_bytes // 2:
            return
        if stats.buffered_bytes > limits.max_buffered_bytes or not (
            held <= limits.max_header_bytes or self._door.is_preferred(self._last_headers())
        ):
            detail = f"requests of {stats.buffered_bytes} bytes are kept, as much as this server takes"
            self.refuse(problem("overloaded", detail, headers=RETRY))

    def _last_headers(self) -> Mapping[bytes, bytes]:
        return self._chunked or self._headers or (self._pending[-1].headers if self._pending else {})

    def _drop_input(self) -> None:
        """Nothing more is read, so what was read of a request that is not whole is not kept."""
        self._unread, self._at, self._body, self._body_bytes, self._header_bytes = b"", 0, b"", 0, 0
        self._parts = bytearray()
        self._charge()

    def release(self, num_bytes: int) -> None:
        """A request was answered, of which so many bytes were kept."""
        self._pending_bytes -= num_bytes
        self._charge()

    # -- after answers, and the end -------------------------------------------------------------------------------

    def after_last(self) -> None:
        """All that was asked is answered."""
        if self._owes_continue and not self._in_headers and not self._is_deaf:
            self._send_continue()
        if self._answers.refusal is not None:
            self._answers.send_refusal(self._answers.refusal)
        elif self._is_half_closed and not self._unread:
            self.hang_up()
        else:
            self._resume()

    def refuse(self, answer: Answer) -> None:
        """Answer what cannot be read any further, and hang up."""
        if self._is_deaf:
            return
        self._is_deaf = True
        self._drop_input()
        self._door.refuse(answer)
        if self._pending:
            self._answers.refusal, self._answers.is_unusual = answer, True
        else:
            self._answers.send_refusal(answer)

    def throw_away(self) -> None:
        """Read on, if it is paused: nothing of it is kept."""
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def hang_up(self) -> None:
        """After what was sent has arrived."""
        self._answers.is_closing = self._is_deaf = True
        self._drop_input()
        self._door.outbox.flush()
        self._transport.close()

    def abort(self) -> None:
        self._answers.is_closing = self._is_deaf = True
        self._drop_input()
        self._transport.abort()

    def close_idle(self) -> None:
        """Hang up if no request is under way."""
        if not self._pending and not self._answers.is_closing:
            self.hang_up()

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self.began and not self._unread

    def check(self, now: float) -> None:
        """Cut off those who are too slow, to be called about once a second."""
        if self.began and now - self.began > self._limits.request_s and not self._pending and not self._is_paused:
            self.refuse(problem("timeout", f"a request must arrive within {self._limits.request_s:g} s"))
        elif not self._answers.is_writable and now - self.touched > self._limits.idle_s:
            self.abort()
        elif self.is_idle and now - self.touched > self._limits.idle_s:
            self.close_idle()

    def _stop(self, answer: Answer) -> NoReturn:
        """Refuse from within the parser, and have it read no further."""
        self.refuse(answer)
        raise ValueError(answer.code)

    def _stop_if(self, answer: Answer | None) -> None:
        if answer is not None:
            self._stop(answer)

    @property
    def _may_read(self) -> bool:
        """Whether there is room for another request behind those that wait."""
        if not self._pending:
            return self._answers.is_writable
        limits = self._limits
        is_full = len(self._pending) >= limits.max_pipelined or self.held_bytes > limits.max_pipelined_bytes
        return self._answers.is_writable and not is_full

    def _pause(self) -> None:
        if not self._is_paused and not self._answers.is_closing:
            self._is_paused = self._answers.is_unusual = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Go on where `_pause` has stopped, if there is room: with what was received, and then with the game."""
        if not self._is_paused or not self._may_read or self._answers.is_closing:
            return
        if self._unread and not self._is_deaf:
            if not self._has_turn:
                self._has_turn = True
                self._door.turns.add(self._go_on)
            return
        self._is_paused = False
        self._answers.is_unusual = self._is_half_closed or self._owes_continue or self._answers.refusal is not None
        if self.began:  # it was not the game that was slow
            self.began = monotonic()
        self._transport.resume_reading()
        if self._is_half_closed and not self._pending:
            self.hang_up()
