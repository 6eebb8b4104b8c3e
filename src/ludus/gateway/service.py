"""The gateway as a worker: its event loop is a thread of its own, and it is controlled like any other worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ludus import errors
from ludus.gateway.actor import ActorLike
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.sessions import Observer
from ludus.gateway.thread import GatewayThread
from ludus.workers.register import register
from ludus.workers.server import WorkerServer
from ludus.workers.worker import Worker

__all__ = ["GatewayService"]


class GatewayService(Worker):
    """Worker i of the `size` on one port. Each session has an actor of its own: `actor(*args, **kwargs)`."""

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
        index = int(server.worker_name.rpartition("/")[2])
        self._options = options
        self._thread = GatewayThread(
            lambda: actor(*args, **(kwargs or {})),
            options,
            index=index,
            size=size,
            observer=make_observer(index) if make_observer is not None else None,
            grace_s=grace_s,
        )
        server.register_service(self)

    def _start(self) -> None:
        self._thread.start()

    @register
    def where(self) -> dict[str, Any]:
        """The port it listens on."""
        return {"host": self._options.host, "port": self._thread.port}

    def _poll(self) -> int:
        if not self._thread.is_alive:
            raise self._thread.error or errors.WorkerError("the gateway's event loop has ended")
        return 0

    def _stats(self) -> Mapping[str, Any]:
        return self._thread.gateway.figures()

    def _exit(self) -> None:
        self._thread.stop()
