"""A worker's server: an RPC server that is found by the worker's name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import Any

from ludus import errors
from ludus.core import Names
from ludus.discovery import names as spell
from ludus.rpc.batching import Batching
from ludus.rpc.server import RpcServer, ServerStats
from ludus.workers.register import register_all

__all__ = ["WorkerServer"]


class WorkerServer:
    """Serves handlers under `experiment/trial/worker/<worker_name>`, a lease that lapses when the process is killed."""

    def __init__(
        self,
        worker_name: str,
        *,
        experiment: str,
        trial: str,
        names: Names,
        host: str = "127.0.0.1",
        port: int | None = None,
        secret: str | None = None,
        ttl: float = 2.0,
    ) -> None:
        self.worker_name = worker_name
        self.experiment = experiment
        self.trial = trial
        self._names = names
        self._key = spell.worker(experiment, trial, worker_name)
        self._ttl = ttl
        self._rpc = RpcServer(port, host=host, secret=secret)
        self._added = False
        self.on_name_taken: Callable[[], None] | None = None  # another process has the name now; from any thread

    def register_handler(
        self,
        command: str,
        handler: Callable[..., Any],
        *,
        response: bool = True,
        batching: Batching | None = None,
    ) -> None:
        """Run `handler(**kwargs)` when `command` is requested."""
        self._rpc.register_handler(command, handler, response=response, batching=batching)

    def register_service(self, service: object, *, but: Collection[str] = ()) -> None:
        """Answer the `@register`ed commands of `service`, `but` these: another service here may have the names."""
        register_all(self._rpc, service, but=but)

    def start(self) -> None:
        """Open the doors and put the name up. A name that a dead predecessor left is taken over."""
        self._rpc.start()
        if not self._added:
            self._names.add(self._key, self._rpc.address, ttl=self._ttl, replace=True, on_taken=self._on_taken)
            self._added = True

    def _on_taken(self) -> None:
        if self._added and self.on_name_taken is not None:
            self.on_name_taken()

    @property
    def address(self) -> str:
        return self._rpc.address

    def handle_requests(self, max_count: int | None = None, *, timeout_s: float = 0.0) -> int:
        """Handle what is there, at most `max_count` requests, after waiting up to `timeout_s` for the first."""
        if not self._added:
            self.start()
        return self._rpc.handle_requests(max_count, timeout_s=timeout_s)

    def wake(self) -> None:
        """Make a waiting `handle_requests` return. Safe from any thread and from signal handlers."""
        self._rpc.wake()

    @property
    def num_run(self) -> int:
        """How many calls were started; safe from any thread."""
        return self._rpc.num_run

    def show_held_up(self, doing: str) -> None:
        """Tell callers what holds the worker's loop up, so that they prefer other replicas; empty: it turns again.

        Not for the loop's thread. Raises `DiscoveryError` if the name service cannot be reached.
        """
        key = f"{spell.held_up_root(self.experiment, self.trial)}/{self.worker_name}"
        if doing:
            self._names.add(key, doing, ttl=self._ttl, replace=True)
        else:
            with contextlib.suppress(errors.NameNotFound):
                self._names.delete(key)

    def statistics(self) -> ServerStats:
        return self._rpc.statistics()

    def close(self) -> None:
        """Take the name down and close the doors. Doing it twice does nothing."""
        if self._added:
            self._added = False
            with contextlib.suppress(errors.DiscoveryError):  # the lease lapses by itself
                self._names.delete(self._key)
        self._rpc.close()

    def __enter__(self) -> WorkerServer:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
