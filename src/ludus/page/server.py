"""A process with the page, from start to end.

with Page(Settings(project="trials")) as page:
    print(page.url)
    page.run()                               # until it is asked to stop, or its parent is gone
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

import uvicorn

from ludus.page.access import Access
from ludus.page.app import make_app
from ludus.page.http_protocol import TimedProtocol
from ludus.page.listening import address_of, bind, is_loopback
from ludus.page.site import Site

__all__ = ["Page", "Settings"]

_LOG = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.5
_MAX_CONNECTIONS = 256
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`port` is as `listening.bind` takes it. `fd`: of a socket that another process has bound and passed on.

    Beyond loopback a token is needed, and made if none is given. `parent`: the page ends with this process.
    """

    project: str = "trials"
    host: str = "127.0.0.1"
    port: int | None = None
    token: str | None = None
    fd: int | None = None
    parent: int | None = None


class _Server(uvicorn.Server):
    """Its own kind raises the signal again that has ended it, as if it had not been answered."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in _ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Page:
    """The port is bound when it is entered, so its address is known before anybody is served."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_public = not is_loopback(settings.host)
        self._token = settings.token or (secrets.token_urlsafe(24) if self._is_public else None)
        self.site = Site(settings.project)

    def __enter__(self) -> Self:
        fd = self._settings.fd
        self._socket = bind(self._settings.host, self._settings.port) if fd is None else socket.socket(fileno=fd)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            Access(make_app(self.site), token=self._token, port=self.port),
            log_config=None,
            access_log=False,  # an address may have the token
            lifespan="off",
            ws="none",
            http=TimedProtocol,
            loop="asyncio",
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._ended = threading.Event()
        return self

    @property
    def url(self) -> str:
        """Where a browser opens the page; with the token, if there is one."""
        return self.url_of("/")

    def url_of(self, path: str) -> str:
        token = f"?{urlencode({'token': self._token})}" if self._token else ""
        return f"{address_of(self._socket, self._settings.host)}{path}{token}"

    def run(self) -> None:
        """Serve until SIGTERM, SIGHUP or Ctrl-C, which are ordinary ends of it."""
        if self._settings.parent is not None:
            threading.Thread(target=self._follow_parent, name="ludus-page-parent", daemon=True).start()
        self._server.run(sockets=[self._socket])

    def _follow_parent(self) -> None:
        while os.getppid() == self._settings.parent:
            if self._ended.wait(_LOOK_EVERY_S):
                return
        _LOG.info("the process that started the page is gone; it ends, too")
        self._server.should_exit = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._socket.close()
        self.site.close()
