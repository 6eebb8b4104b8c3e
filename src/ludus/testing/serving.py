"""A server in a thread, for tests and notebooks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ludus.rpc.server import RpcServer

__all__ = ["ServerThread"]


class ServerThread:
    """Runs `server.handle_requests` in a thread between `__enter__` and `__exit__`."""

    def __init__(self, server: RpcServer, **handlers: Callable[..., Any]) -> None:
        self.server = server
        for command, handler in handlers.items():
            server.register_handler(command, handler)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="server")

    @property
    def address(self) -> str:
        return self.server.address

    def _run(self) -> None:
        self.server.serve_forever(self._stop)

    def __enter__(self) -> ServerThread:
        self.server.start()
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self.server.wake()
        self._thread.join(10.0)
        self.server.close()
