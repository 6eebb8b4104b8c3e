"""How a driver tells others of its workers, and starts one again: for `ludus ctl` and the page.

A worker answers calls between two polls only. What its driver knows of it comes by heartbeats, which do not wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from ludus import core, errors
from ludus.discovery import names as naming
from ludus.launch.supervisor import WorkerRecord
from ludus.rpc.client import RpcClient
from ludus.rpc.server import RpcServer

__all__ = ["StatusServer", "ask_driver", "ask_restart"]

_LOG = logging.getLogger(__name__)
_TTL_S = 5.0


class StatusServer:
    """From `start` to `close`, a thread of the driver that answers `workers` and `restart` to other processes."""

    def __init__(
        self,
        records: Callable[[], list[WorkerRecord]],
        restart: Callable[[str], None],
        *,
        experiment: str,
        trial: str,
        secret: str | None,
    ) -> None:
        """`restart` is called with the name of a worker; what it raises is raised at the one who asked."""
        self._records = records
        self._key = _key(experiment, trial)
        self._server = RpcServer(secret=secret)
        self._server.register_handler("workers", self._workers)
        self._server.register_handler("restart", restart)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(self._stop,), daemon=True)
        self._names: core.Names | None = None

    def start(self, names: core.Names) -> None:
        self._server.start()
        self._thread.start()
        self._names = names
        try:
            names.add(self._key, self._server.address, ttl=_TTL_S, replace=True)
        except errors.DiscoveryError as error:  # the run does not depend on it
            _LOG.warning("`ludus ctl` will not see what busy workers do: %s", error)

    def close(self) -> None:
        self._stop.set()
        self._server.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._server.close()

    def _workers(self) -> dict[str, dict[str, Any]]:
        shown = {}
        for record in self._records():
            end = record.last_end
            shown[record.name] = {
                "status": record.activity or record.status.value,
                "phase": record.status.value,
                "pid": record.pid,
                "busy_s": record.busy_s,
                "silent_s": record.silent_s,
                "restarts": record.restarts,
                "last_end": end.reason if end is not None else "",
            }
        return shown


def ask_driver(
    experiment: str, trial: str, *, names: core.Names, secret: str | None, timeout_s: float = 1.0
) -> dict[str, dict[str, Any]]:
    """What the driver of a trial knows of its workers, by name; nothing if it cannot be asked."""
    try:
        address = names.get(_key(experiment, trial))
        with RpcClient(address, secret=secret, timeout_s=timeout_s) as client:
            workers: dict[str, dict[str, Any]] = client.request("workers")
            return workers
    except (errors.DiscoveryError, errors.RpcError) as error:
        _LOG.debug("the driver of %s could not be asked: %s", trial, error)
        return {}


def ask_restart(
    experiment: str, trial: str, worker: str, *, names: core.Names, secret: str | None, timeout_s: float = 5.0
) -> None:
    """Have a worker exit and be started again. Returns when it was asked; raises `LudusError` if it cannot be."""
    try:
        address = names.get(_key(experiment, trial))
    except errors.DiscoveryError as error:
        raise errors.ProgramError(
            f"the driver of {trial!r} cannot be asked: it may have just ended ({error})."
        ) from None
    with RpcClient(address, secret=secret, timeout_s=timeout_s) as client:
        client.request("restart", worker=worker)


def _key(experiment: str, trial: str) -> str:
    return naming.key(experiment, trial, "driver", "status")
