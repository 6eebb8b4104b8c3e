"""The way out: the answers of each connection in the order of its requests, and of all of them together.

What is answered in one turn of the event loop is written at its end. Each write to a socket whose reader sleeps wakes
it, which costs more than the answer itself. Written one after another, the answers of a turn wake the other side once.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from ludus.gateway.http.wire import Answer, answer_of, head_of, problem, response
from ludus.gateway.step import Outcome

if TYPE_CHECKING:
    from ludus.gateway.http.connection import Connection
    from ludus.gateway.http.door import HttpDoor

__all__ = ["CLOSE", "KEEP", "Answers", "Outbox", "Request", "failed"]

_LOG = logging.getLogger(__name__)
_LINGER_S = 2.0  # for which what a game still sends is thrown away, so that it gets to read why it was refused
CLOSE = b"close"
KEEP = b"keep-alive"


class Outbox:
    """Of one event loop. What is given to it is written in the order in which it was given."""

    def __init__(self) -> None:
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []

    def send(self, transport: asyncio.Transport, data: bytes) -> None:
        waiting = self._waiting
        if not waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        waiting.append((transport, data))

    def flush(self) -> None:
        """Write what waits, now."""
        waiting, self._waiting = self._waiting, []
        for transport, data in waiting:
            if not transport.is_closing():
                transport.write(data)


class Request:
    """One request, read whole; called with its outcome, it sends the answer. Names of headers are in lower case."""

    __slots__ = (
        "answers", "arrived", "body", "headers", "held_bytes", "kind", "method", "path", "persistence", "refused",
    )  # fmt: skip

    def __init__(
        self,
        answers: Answers,
        method: bytes,
        path: bytes,
        headers: Mapping[bytes, bytes],
        body: bytes,
        arrived: float,
        persistence: bytes,
        refused: Answer | None,
    ) -> None:
        self.answers = answers
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.arrived = arrived
        self.persistence = persistence  # the answer's header `connection`: empty, close or keep-alive
        self.refused = refused  # why, if its headers were enough to refuse it
        self.held_bytes = 0  # of its body, where they count as buffered
        self.kind: str | None = None  # of a step, once it is known

    def __call__(self, outcome: Outcome | Answer) -> None:
        """Count the step, and send its answer."""
        answers = self.answers
        answers.metrics.add(self.kind or "stateless", outcome.code, monotonic() - self.arrived)
        answers.send(self, outcome)


class Answers:
    """The sending half of a `Connection`."""

    def __init__(self, connection: Connection, door: HttpDoor) -> None:
        self.connection = connection
        self._door = door
        self._stats = door.stats
        self._outbox = door.outbox
        self.metrics = door.metrics
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.pending: deque[Request] = deque()  # read, and not answered or not sent yet, in order
        self.refusal: Answer | None = None  # to be sent after the answers to what was asked before
        self.is_closing = False  # nothing is answered any more
        self.is_writable = True
        self.is_unusual = False  # the connection has something to do after the last answer
        self._versions: Any = None  # of the last answer
        self._head = b""  # made for them

    def send(self, request: Request, answer: Outcome | Answer) -> None:
        """Answer a request; the next one that was read is handled then."""
        pending = self.pending
        if self.is_closing or not pending or pending[0] is not request:
            return  # the game is gone
        pending.popleft()
        if self.connection.held_bytes:
            self.connection.release(request.held_bytes)
        if type(answer) is not Outcome or answer.code or request.persistence or request.method == b"HEAD":
            self._write(answer, request)
        else:
            if answer.versions is not self._versions:  # a mapping belongs to one session
                self._versions, self._head = answer.versions, head_of(answer)
            body = answer.body
            data = b"%b%d\r\n\r\n%b" % (self._head, len(body), body)
            self._stats.bytes_out += len(data)
            self._outbox.send(self.transport, data)
            if not self.is_writable:
                self._check_unsent()
        if pending and not self.is_closing:
            asyncio.get_running_loop().call_soon(self._handle_next)
        elif self.is_unusual:
            self.connection.after_last()

    def _handle_next(self) -> None:
        if self.pending and not self.is_closing:
            request = self.pending[0]
            try:
                self._door.handle(request)
            except Exception:
                self.send(request, failed())

    def _write(self, answer: Outcome | Answer, request: Request) -> None:
        if isinstance(answer, Outcome):
            answer = answer_of(answer)
        data = response(answer, request.persistence)
        if request.method == b"HEAD":
            data = data[: len(data) - len(answer.body)]
        self._stats.bytes_out += len(data)
        self._outbox.send(self.transport, data)
        if request.persistence == CLOSE:
            self.connection.hang_up()
        elif not self.is_writable:
            self._check_unsent()

    def _check_unsent(self) -> None:
        """Cut off a game that asks and does not read the answers."""
        if self.transport.get_write_buffer_size() > self._door.limits.max_unsent_bytes:
            self.connection.abort()

    def send_refusal(self, answer: Answer) -> None:
        """The last that is sent. Hanging up at once, while the game sends, would take the answer from it."""
        self.is_closing = True
        data = response(answer, CLOSE)
        self._stats.bytes_out += len(data)
        self._outbox.send(self.transport, data)
        self._outbox.flush()
        self.connection.throw_away()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER_S, self.transport.abort)
        else:  # TLS, whose end looks like its connection's
            self.transport.close()


def failed() -> Answer:
    """The gateway itself raised: the game gets an id, under which the log has the traceback."""
    number = uuid.uuid4().hex[:16]
    _LOG.exception("a request failed, id %s", number)
    return problem("server_failed", "the server failed; its log has more under the id", id=number)
