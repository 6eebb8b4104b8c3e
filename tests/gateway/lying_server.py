"""A server that lies: one answer that no client must believe, then an honest one. It counts what it could send."""

from __future__ import annotations

import functools
import gzip
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

__all__ = ["LIES", "LyingServer"]

_OK = b"HTTP/1.1 200 OK\r\n"
_PART = 1 << 16


def _endless(head: bytes, part: bytes) -> Iterator[bytes]:
    return itertools.chain([_OK + head], itertools.repeat(part * (_PART // len(part))))


def _drip() -> Iterator[bytes]:
    """A byte every 50 ms: each is in time for a limit of one second, all of them are not."""
    for byte in _OK + b"content-length: 400\r\n\r\n" + b"x" * 400:
        yield bytes([byte])
        time.sleep(0.05)


@functools.cache
def _packed() -> bytes:
    return gzip.compress(bytes(64 << 20))


def _bomb() -> Iterator[bytes]:
    """1 GB in 1 MB: sixteen members of 64 MB, packed once."""
    packed = _packed() * 16
    yield _OK + b"content-encoding: gzip\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(packed)
    yield packed


LIES = {
    "headers without end": lambda: _endless(b"", b"x-more: of it\r\n"),
    "a header without end": lambda: _endless(b"x-more: ", b"x"),
    "interim answers without end": lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    "a negative length": lambda: _endless(b"content-length: -1\r\n\r\n", b"x"),
    "a length that is none": lambda: _endless(b"content-length: many\r\n\r\n", b"x"),
    "a length of a petabyte": lambda: _endless(b"content-length: 1000000000000000\r\n\r\n", b"x"),
    "a length of thirty digits": lambda: _endless(b"content-length: %b\r\n\r\n" % (b"9" * 30), b"x"),
    "a chunk that is none": lambda: iter([_OK + b"transfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n"]),
    "a chunk of no size": lambda: iter([_OK + b"transfer-encoding: chunked\r\n\r\n\r\n\r\n\r\n"]),
    "a negative chunk": lambda: _endless(b"transfer-encoding: chunked\r\n\r\n-1\r\n", b"x"),
    "a chunk without end": lambda: _endless(b"transfer-encoding: chunked\r\n\r\nffffffffffff\r\n", b"x"),
    "chunks without end": lambda: _endless(b"transfer-encoding: chunked\r\n\r\n", b"3\r\nabc\r\n"),
    "a chunk longer than it says": lambda: iter([_OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n"]),
    "a status that is none": lambda: iter([b"HTTP/1.1 abc OK\r\ncontent-length: 0\r\n\r\n"]),
    "a byte now and then": _drip,
    "a bomb": _bomb,
}


class LyingServer:
    """Lies on its first connection and tells the truth ("ok") on the others."""

    def __init__(self, lie: str) -> None:
        self._lie = LIES[lie]
        if self._lie is _bomb:
            _packed()  # takes longer than clients wait
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.port: int = self._listener.getsockname()[1]
        self.num_sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30.0)

    def _serve(self) -> None:
        for number in itertools.count():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed: that is all
                return
            with connection:
                connection.settimeout(60.0)
                try:
                    connection.recv(_PART)
                    if number == 0:
                        for part in self._lie():
                            connection.sendall(part)
                            self.num_sent += len(part)
                    else:
                        connection.sendall(_OK + b"content-length: 2\r\n\r\nok")
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(_PART)
                except OSError:  # the client has hung up, as it should
                    pass
