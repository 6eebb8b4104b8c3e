"""A service in a thread of another's process, under a name of its own: a trainer's weights and buffer, a driver's.

A trainer answers calls between its turns only, and a turn may take long: it computes, or waits for simulators and for
other ranks. These need its weights to answer, and should not wait to have their segments queued.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Any, Protocol

from ludus.core import WorkerStatus
from ludus.rpc import address
from ludus.rpc.call import Pending
from ludus.workers import context
from ludus.workers.register import commands_of
from ludus.workers.remote import Remote
from ludus.workers.server import WorkerServer

__all__ = ["Hosted", "HostedService", "ServiceHost"]

_LOG = logging.getLogger(__name__)


class HostedService(Protocol):
    """What can be hosted: `@register`ed commands, and these."""

    def stats(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


class ServiceHost:
    """From `start` to `close`, answers for `service` as worker `name`, where the server `beside` can be reached.

    Without `beside`, at the address `host`; unless that is loopback's, other hosts reach it. `here`: its trial, if that
    is not this process's own.
    """

    def __init__(
        self,
        service: HostedService,
        name: str,
        *,
        beside: WorkerServer | None = None,
        host: str | None = None,
        here: context.Context | None = None,
    ) -> None:
        here = here or context.current()
        if beside is not None:
            host = address.parse(beside.address).tcp.rpartition(":")[0]
        elif host is not None and address.is_loopback(host):
            host = None
        self._service = service
        self._server = WorkerServer(
            name,
            experiment=here.experiment,
            trial=here.trial,
            names=here.names,
            host=host or "127.0.0.1",
            port=0 if host else None,
            secret=here.secret,
        )
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self) -> None:
        """May be called twice."""
        if self._thread.is_alive():
            return
        self._server.register_service(self._service)
        self._server.register_handler("ping", self._ping)
        self._server.register_handler("stats", lambda: {**self._ping(), **self._service.stats()})
        for command in ("pause", "resume", "interrupt", "exit"):  # sent to all workers: it stays as long as its process
            if command not in commands_of(self._service):
                self._server.register_handler(command, lambda: None)
        self._thread.start()

    def close(self) -> None:
        """May be called twice."""
        self._is_closing.set()
        self._server.wake()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _ping(self) -> dict[str, Any]:
        return {"status": WorkerStatus.RUNNING.value, "pid": os.getpid()}

    def _serve(self) -> None:
        try:
            while not self._is_closing.is_set():
                self._server.handle_requests(timeout_s=0.5)
        except Exception:
            _LOG.exception("%s does not answer any more", self._server.worker_name)
        finally:
            self._service.close()
            self._server.close()


class Hosted:
    """Calls to a hosted service of the trial that this process belongs to. Travels in arguments."""

    def __init__(self, node: str, index: int) -> None:
        self._node = node
        self._index = index
        self._remote: Remote | None = None

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending:
        if self._remote is None:
            self._remote = Remote(self._node).replica(self._index)
        return self._remote.submit(command, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_remote": None}

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None
