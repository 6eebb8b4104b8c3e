"""JSON over HTTP with the standard library, for the backends that speak it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ludus import errors

__all__ = ["Answer", "HttpClient"]

_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Answer:
    """A response, read to its end, and when (by `time.time`) it was asked for and had."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent_at: float
    received_at: float


class HttpClient:
    """Requests to one server, from any thread, over connections that are kept. Raises `DiscoveryError`."""

    def __init__(self, host: str, port: int, *, what: str, headers: Mapping[str, str] | None = None) -> None:
        self._host = host
        self._port = port
        self._what = what
        self._headers = dict(headers or {})
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def request(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """Ask; and if that was over a kept connection, which the server may have dropped, ask again."""
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                return self._exchange(kept, method, path, body)
            except TimeoutError as error:
                raise self._unreachable(error) from error
            except (OSError, http.client.HTTPException):
                pass
        try:
            return self._exchange(self.connection(), method, path, body)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def connection(self, *, timeout_s: float | None = _TIMEOUT_S) -> http.client.HTTPConnection:
        """A new connection, for the caller alone."""
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _exchange(self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None) -> Answer:
        sent_at = time.time()
        try:
            connection.request(method, path, body, self._headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)
        headers = dict(response.headers.items())
        return Answer(response.status, headers, content, sent_at, time.time())

    def _unreachable(self, error: Exception) -> errors.DiscoveryError:
        why = str(error) or type(error).__name__
        return errors.DiscoveryError(f"{self._what} at {self._host}:{self._port} does not answer: {why}")
