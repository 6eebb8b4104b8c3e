"""A gateway on an event loop of its own, in a thread: what a worker runs, and what tests and notebooks use as it is.

with GatewayThread(MyActor, GatewayOptions(port=8000)) as gateway:
    print(gateway.url)
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ludus import errors
from ludus.gateway.actor import MakeActor
from ludus.gateway.gateway import Gateway, GatewayOptions
from ludus.gateway.loop import new_event_loop
from ludus.gateway.session_core import Observer

__all__ = ["GatewayThread"]

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 10.0
_START_S = 30.0


class GatewayThread:
    """Listens between `start` and `stop`, on an event loop of its own."""

    def __init__(
        self,
        make_actor: MakeActor,
        options: GatewayOptions | None = None,
        *,
        index: int = 0,
        size: int = 1,
        observer: Observer | None = None,
        grace_s: float = 2.0,
    ) -> None:
        self._make_actor = make_actor
        self._options = options or GatewayOptions()
        self._index = index
        self._size = size
        self._observer = observer
        self._grace_s = grace_s
        self._is_up = threading.Event()
        self._is_asked_to_stop = False
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gateway: Gateway | None = None
        self._cpu_clock: int | None = None
        self._thread = threading.Thread(target=self._live, name="gateway", daemon=True)

    @property
    def gateway(self) -> Gateway:
        if self._gateway is None:
            raise errors.WorkerError("the gateway is not up; call start first")
        return self._gateway

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def ident(self) -> int | None:
        """Of the thread that the event loop runs in."""
        return self._thread.ident

    @property
    def cpu_s(self) -> float:
        """Processor time that this thread has used; 0 where that is not known."""
        return 0.0 if self._cpu_clock is None else time.clock_gettime(self._cpu_clock)

    @property
    def error(self) -> BaseException | None:
        """Why it has ended, if it should not have."""
        return self._error

    @property
    def port(self) -> int:
        return self.gateway.port

    @property
    def url(self) -> str:
        host = self._options.host
        scheme = "https" if self._options.tls_cert is not None else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def grpc_url(self) -> str:
        """Of the gRPC door. Raises `ConfigError` if there is none."""
        if self.gateway.grpc_port is None:
            raise errors.ConfigError("this gateway has no gRPC door; give a grpc_port")
        host = self._options.host
        scheme = "grpcs" if self._options.tls_cert is not None else "grpc"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.gateway.grpc_port}"

    def start(self) -> GatewayThread:
        """Returns when it listens. Raises `OSError` if the port is taken."""
        self._thread.start()
        if not self._is_up.wait(_START_S):
            raise errors.WorkerError(f"the gateway does not listen after {_START_S:g} s")
        if self._error is not None:
            raise self._error
        return self

    def call(self, function: Callable[[], Any], *, patience_s: float = _PATIENCE_S) -> Any:
        """Call it on the gateway's loop and return what it returns: what lives there is not safe to touch from here.

        Raises `TimeoutError` if the loop is held up for longer than `patience_s`.
        """

        async def run() -> Any:
            return function()

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(patience_s)

    def stop(self) -> None:
        """End the sessions with the reason `shutdown`, and hang up."""
        if self._loop is None or not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._ask_to_stop)
        self._thread.join(self._grace_s + _PATIENCE_S)
        if self._thread.is_alive():
            raise errors.WorkerError("the gateway does not end; an actor holds up its event loop")
        if self._error is not None:
            raise self._error

    def _live(self) -> None:
        loop = new_event_loop()
        asyncio.set_event_loop(loop)
        self._loop = loop
        if hasattr(time, "pthread_getcpuclockid"):  # macOS has none
            self._cpu_clock = time.pthread_getcpuclockid(threading.get_ident())
        try:
            gateway = Gateway(
                self._make_actor, self._options, index=self._index, size=self._size, observer=self._observer
            )
            loop.run_until_complete(gateway.start())
            self._gateway = gateway
        except BaseException as error:
            self._error = error
            loop.close()
            return
        finally:
            self._is_up.set()
        try:
            while not self._is_asked_to_stop:
                self._run(loop)
            loop.run_until_complete(gateway.stop(self._grace_s))
        except BaseException as error:
            self._error = error
        finally:
            loop.close()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Until it is asked to stop, or a task that an actor has made itself exits: that is not the worker's end."""
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            _LOG.exception("a task of an actor raised what would end the process; the gateway goes on")

    def _ask_to_stop(self) -> None:
        self._is_asked_to_stop = True
        assert self._loop is not None
        self._loop.stop()

    def __enter__(self) -> GatewayThread:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()
