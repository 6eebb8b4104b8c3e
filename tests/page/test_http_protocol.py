"""Clients that are slow, on purpose or not."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from ludus.page import http_protocol
from ludus.page.http_protocol import TimedProtocol
from ludus.page.listening import bind


async def _app(scope, receive, send):
    await PlainTextResponse("the page")(scope, receive, send)


@contextlib.contextmanager
def served() -> Iterator[int]:
    with bind("127.0.0.1", 0) as listening:
        config = uvicorn.Config(_app, http=TimedProtocol, log_config=None, lifespan="off", ws="none", loop="asyncio")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(60.0)
        assert not thread.is_alive()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc", b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT"])
def test_a_client_that_never_ends_its_request_is_cut_off(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(http_protocol, "ANSWERED_WITHIN_S", 2.0 if b"\r\n\r\n" in sent else 0.5)  # it has to answer
    with served() as port, socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(sent)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(4096):
                received += part
        assert received.endswith(b"the page") is (b"\r\n\r\n" in sent)
