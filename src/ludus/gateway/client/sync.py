"""`GameClient`: the game's side of the protocol, blocking, and of the standard library only."""

from __future__ import annotations

import functools
import http.client
import io
import math
import select
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from ludus.gateway.client.protocol import MAX_HEAD_BYTES, BaseGameClient, too_large

__all__ = ["GameClient"]

_PIECE = 1 << 16  # of a chunked answer: http.client makes room for as much as a chunk says it has


class GameClient(BaseGameClient):
    """Calls one actor at a time: `start`, `tick` …, `end`, and again. Not to be shared between threads."""

    _connection: http.client.HTTPConnection | None = None
    _sleep: Callable[[float], None] = staticmethod(time.sleep)

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
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> GameClient:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _step(self, kind: str | None, data: bytes, **extras: Any) -> bytes:
        course = self._course
        course.step(kind, extras.get("deadline_ms"))
        if not course.may_repeat and self._connection is not None and _is_readable(self._connection.sock):
            self.close()
        while True:
            was_sent = False
            try:
                connection = self._connect()
                headers = course.headers(kind, data, **extras)
                was_sent = True
                response, body = self._exchange(connection, headers, data)
            except BaseException as error:
                self.close()  # an answer that is still to come is none to the next step
                if was_sent:
                    course.lose()
                if not isinstance(error, (OSError, http.client.HTTPException)):
                    raise
                self._sleep(course.broke(error, self._place, was_sent=was_sent))
                continue
            if response.will_close:
                self.close()
            pause_s = course.answered(response.status, body, response.getheader)
            if pause_s is None:
                return body
            self._sleep(pause_s)

    def _exchange(
        self, connection: http.client.HTTPConnection, headers: Mapping[str, str], data: bytes
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a step and read its answer, which may come before all is sent: then the server wants no more of it."""
        was_cut = None
        limits = self._limits
        limits.begin(connection.sock, self._course.time_for(self._timeout_s))
        try:
            connection.request("POST", self._place.path, data, headers)
        except OSError as error:
            if connection.sock is None or not _is_readable(connection.sock):
                raise
            was_cut = error
        try:
            response = connection.getresponse()
            if response.length is None and not response.chunked:  # headers that were cut off are none to http.client
                raise http.client.IncompleteRead(b"")
            if (response.length or 0) > limits.max_bytes:
                raise too_large(limits.max_bytes, response.status)
            body = b"".join(iter(lambda: response.read(_PIECE), b"")) if response.chunked else response.read()
        except ValueError as error:  # http.client does not check all that it reads
            raise http.client.HTTPException(f"the answer is not HTTP: {error}") from error
        except (OSError, http.client.HTTPException):
            if was_cut is not None:
                raise was_cut from None
            raise
        if was_cut is not None:
            self.close()
        return response, body

    def _connect(self) -> http.client.HTTPConnection:
        """The connection, opened now if it is not open."""
        if self._connection is None:
            place, timeout_s = self._place, self._course.time_for(self._timeout_s)
            if place.is_tls:
                self._connection = http.client.HTTPSConnection(
                    place.host, place.port, timeout=timeout_s, context=self._context
                )
            else:
                self._connection = http.client.HTTPConnection(place.host, place.port, timeout=timeout_s)
            self._connection.connect()
            self._limits = _Limits(self._max_answer_bytes)
            make = functools.partial(_Answer, limits=self._limits)
            self._connection.response_class = make  # type: ignore[assignment]
        return self._connection


class _Limits:
    """What one answer may take: time and bytes, however slowly or for however long a server sends."""

    def __init__(self, max_bytes: int) -> None:
        self._num_seconds = math.inf
        self.max_bytes = max_bytes
        self._until = 0.0
        self._num_bytes = 0

    def begin(self, connection: socket.socket | None, timeout_s: float | None) -> None:
        self._num_seconds = math.inf if timeout_s is None else timeout_s
        self._until = time.monotonic() + self._num_seconds
        self._num_bytes = 0
        if connection is not None and connection.gettimeout() != timeout_s:
            connection.settimeout(timeout_s)

    def before_read(self, connection: socket.socket) -> None:
        """Raise `TimeoutError` if time is up. The socket's own timeout is as good while most of it is left."""
        left_s = self._until - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError(f"the answer was not whole after {self._num_seconds:g} s")
        if left_s < 0.9 * self._num_seconds:
            connection.settimeout(left_s)

    def after_read(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        if self._num_bytes > self.max_bytes + MAX_HEAD_BYTES:
            raise too_large(self.max_bytes, 0)


class _Answer(http.client.HTTPResponse):
    """A response that is read within limits."""

    def __init__(self, sock: socket.socket, *args: Any, limits: _Limits, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_LimitedReader(self.fp.detach(), sock, limits))


class _LimitedReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, connection: socket.socket, limits: _Limits) -> None:
        self._raw = raw
        self._connection = connection
        self._limits = limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._limits.before_read(self._connection)
        num_bytes: int | None = self._raw.readinto(buffer)
        self._limits.after_read(num_bytes or 0)
        return num_bytes

    def close(self) -> None:
        self._raw.close()
        super().close()


def _is_readable(connection: socket.socket | None) -> bool:
    """Whether something came, or the server hung up: between two answers nothing else happens."""
    if connection is None:
        return True
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
