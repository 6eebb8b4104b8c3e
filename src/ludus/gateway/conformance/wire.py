"""A connection that sends any bytes, right or wrong, and reads HTTP answers strictly."""

from __future__ import annotations

import contextlib
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import msgspec

from ludus.gateway.client import Place

__all__ = ["Failed", "Reply", "Skipped", "Wire", "request_bytes"]


class Failed(Exception):
    """The rule does not hold; the text is what was seen."""


class Skipped(Exception):
    """The rule cannot be checked here; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def __str__(self) -> str:
        body = self.body[:160].decode("utf-8", "replace")
        return f"{self.status} {body}"

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError as error:
            raise Failed(f"the body is not JSON ({error}): {self}") from None


class Wire:
    """One connection. Reads raise `Failed` when nothing comes in `timeout_s`, or when what comes is not HTTP/1.1."""

    def __init__(self, place: Place, *, timeout_s: float, context: ssl.SSLContext | None = None) -> None:
        made = socket.create_connection((place.host, place.port), timeout=timeout_s)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if place.is_tls:
            made = (context or ssl.create_default_context()).wrap_socket(made, server_hostname=place.host)
        self._socket = made
        self._buffer = b""

    def send(self, data: bytes) -> None:
        """Raises `OSError` if the server has hung up."""
        self._socket.sendall(data)

    def send_and_leave(self) -> None:
        """Say that nothing more will be sent."""
        self._socket.shutdown(socket.SHUT_WR)

    def read(self, *, is_head: bool = False) -> Reply:
        """The next answer. Interim ones (100) are passed over."""
        while True:
            end = self._fill_until(b"\r\n\r\n")
            head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
            lines = head.split(b"\r\n")
            words = lines[0].split(b" ", 2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
                raise Failed(f"this is no status line: {lines[0][:80]!r}")
            status = int(words[1])
            headers: dict[str, str] = {}
            for line in lines[1:]:
                name, colon, value = line.partition(b":")
                if not colon:
                    raise Failed(f"this is no header: {line[:80]!r}")
                headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()
            if status != 100:
                break
        body = b"" if is_head else self._read_body(headers)
        return Reply(status=status, headers=headers, body=body)

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks()
        length = headers.get("content-length", "")
        if not length.isdigit():
            raise Failed("the answer has no content-length, so that nobody knows where it ends")
        return self._take(int(length))

    def _read_chunks(self) -> bytes:
        parts: list[bytes] = []
        while True:
            end = self._fill_until(b"\r\n")
            size = int(self._buffer[:end].partition(b";")[0], 16)
            self._buffer = self._buffer[end + 2 :]
            part = self._take(size + 2)[:-2]
            if not size:
                return b"".join(parts)
            parts.append(part)

    def is_closed(self, *, within_s: float | None = None) -> bool:
        """Whether the server hangs up, and sends nothing before it does."""
        if self._buffer:
            return False
        if within_s is not None:
            self._socket.settimeout(within_s)
        try:
            return not self._socket.recv(1)
        except TimeoutError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _fill_until(self, mark: bytes) -> int:
        while (end := self._buffer.find(mark)) < 0:
            self._more()
        return end

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _more(self) -> None:
        try:
            data = self._socket.recv(65536)
        except TimeoutError:
            raise Failed(f"no answer in {self._socket.gettimeout():g} s") from None
        except OSError as error:
            raise Failed(f"the connection broke instead of an answer: {error}") from None
        if not data:
            raise Failed("the server hung up without an answer")
        self._buffer += data

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def request_bytes(
    place: Place, headers: dict[str, str], data: bytes = b"", *, method: str = "POST", path: str | None = None
) -> bytes:
    """A well-formed request; `content-length` is added unless the headers say how the body ends."""
    lines = [f"{method} {path if path is not None else place.path} HTTP/1.1", f"Host: {place.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if not {"content-length", "transfer-encoding"} & {name.lower() for name in headers}:
        lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data
