"""The gateway as a worker: an event loop in a thread of its own, controlled like any other worker."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ludus import errors
from ludus.gateway.actor import ActorLike
from ludus.gateway.gateway import Gateway, GatewayOptions
from ludus.gateway.sessions import Observer
from ludus.workers.register import register
from ludus.workers.server import WorkerServer
from ludus.workers.worker import Worker

__all__ = ["GatewayService", "new_event_loop"]

_LOG = logging.getLogger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's."""
    try:
        import uvloop
    except ImportError:
        raise errors.MissingExtra("uvloop", extra="serve") from None
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class GatewayService(Worker):
    """Worker `gateway/i` of `size` on one port. Each session has an actor of its own: `actor(*args, **kwargs)`."""

    idle_s = 0.5

    def __init__(
        self,
        server: WorkerServer,
        options: GatewayOptions,
        actor: Callable[..., ActorLike],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        size: int = 1,
        make_observer: Callable[[int], Observer] | None = None,
        grace_s: float = 3.0,
    ) -> None:
        super().__init__(server)
        self._options = options
        self._make_actor = lambda: actor(*args, **(kwargs or {}))
        self._size = size
        self._index = int(server.worker_name.rpartition("/")[2])
        self._make_observer = make_observer
        self._grace_s = grace_s
        self._gateway: Gateway | None = None
        self._is_up = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._live, name="gateway", daemon=True)
        server.register_service(self)

    def _start(self) -> None:
        self._thread.start()
        self._is_up.wait()
        if self._error is not None:
            raise self._error

    def _live(self) -> None:
        try:
            self._loop = new_event_loop()
            asyncio.set_event_loop(self._loop)
            observer = self._make_observer(self._index) if self._make_observer is not None else None
            self._gateway = Gateway(
                self._make_actor, self._options, index=self._index, size=self._size, observer=observer
            )
            self._loop.run_until_complete(self._gateway.start())
        except BaseException as error:
            self._error = error
            return
        finally:
            self._is_up.set()
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._gateway.stop(self._grace_s))
        except BaseException as error:
            self._error = error
        finally:
            self._loop.close()

    @register
    def where(self) -> dict[str, Any]:
        """The port it listens on."""
        assert self._gateway is not None
        return {"host": self._options.host, "port": self._gateway.port}

    def _poll(self) -> int:
        if not self._thread.is_alive():
            raise self._error or errors.WorkerError("the gateway's event loop has ended")
        return 0

    def _stats(self) -> Mapping[str, Any]:
        return self._gateway.figures() if self._gateway is not None else {}

    def _exit(self) -> None:
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(self._grace_s + 5.0)
