"""Renewing leases in the background, and restoring those that were lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ludus import errors
from ludus.clock import SYSTEM, Clock
from ludus.discovery.store import Record

__all__ = ["KeepAlive"]

log = logging.getLogger(__name__)

_IDLE_S = 60.0
_MAX_RETRY_S = 1.0


@dataclass
class _Lease:
    record: Record
    period: float
    due: float
    on_taken: Callable[[], None] | None = None
    failing: bool = False


class KeepAlive:
    """Calls `renew(name, record)` for each lease it holds, `renewals_per_ttl` times within its ttl.

    `renew` answers `False` when somebody else has the name now: the lease is let go, with a warning. When it
    raises `DiscoveryError` (the backend is out of reach) it is tried again until it works: a lease that
    lapsed in between is put back. The thread starts with the first lease and ends with `close`.
    """

    def __init__(
        self, renew: Callable[[str, Record], bool], *, renewals_per_ttl: int = 3, clock: Clock = SYSTEM
    ) -> None:
        self._renew = renew
        self._renewals_per_ttl = renewals_per_ttl
        self._clock = clock
        self._leases: dict[str, _Lease] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def hold(self, name: str, record: Record, *, on_taken: Callable[[], None] | None = None) -> None:
        """Keep `record`, which was just written, alive. It must have a ttl. `on_taken`: see `core.Names.add`."""
        assert record.ttl is not None
        period = record.ttl / self._renewals_per_ttl
        with self._lock:
            self._leases[name] = _Lease(record, period, due=self._clock.now() + period, on_taken=on_taken)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="ludus-keepalive", daemon=True)
                self._thread.start()
        self._wake.set()

    def drop(self, name: str) -> None:
        """Stop keeping `name` alive; a name that is not held is no error."""
        with self._lock:
            self._leases.pop(name, None)

    def holds(self, name: str, record: Record) -> bool:
        """Whether `name` is kept alive, and with this very record."""
        with self._lock:
            lease = self._leases.get(name)
            return lease is not None and lease.record is record

    def held(self) -> dict[str, Record]:
        """Every lease that is kept alive: name → record."""
        with self._lock:
            return {name: lease.record for name, lease in self._leases.items()}

    def close(self) -> None:
        """End the thread. The leases are left to the owner of this object."""
        with self._lock:
            self._closed = True
            self._leases.clear()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def renew_due(self) -> float:
        """Renew every lease whose time has come; returns the seconds until the next."""
        now = self._clock.now()
        with self._lock:
            due = [(name, lease) for name, lease in self._leases.items() if lease.due <= now]
        for name, lease in due:
            self._renew_one(name, lease)
        with self._lock:
            next_due = min((lease.due for lease in self._leases.values()), default=now + _IDLE_S)
        return max(0.0, next_due - self._clock.now())

    def _renew_one(self, name: str, lease: _Lease) -> None:
        began = self._clock.now()
        try:
            kept = self._renew(name, lease.record)
        except errors.DiscoveryError as error:
            if not lease.failing:
                log.warning("cannot renew the lease on %r (ttl %g s); trying on: %s", name, lease.record.ttl, error)
            lease.failing = True
            lease.due = self._clock.now() + min(lease.period, _MAX_RETRY_S)
            return
        except Exception:
            log.exception("renewing the lease on %r failed in a way that is a bug; trying on", name)
            lease.due = self._clock.now() + lease.period
            return
        if not kept:
            log.warning("%r now belongs to somebody else, so its lease is no longer kept alive here", name)
            with self._lock:
                if self._leases.get(name) is lease:
                    del self._leases[name]
            if lease.on_taken is not None:
                lease.on_taken()
            return
        if lease.failing:
            log.warning("the lease on %r is renewed again", name)
        lease.failing = False
        lease.due = began + lease.period

    def _run(self) -> None:
        while not self._closed:
            self._clock.wait(self._wake, self.renew_due())
            self._wake.clear()  # before looking at what it was set for, or that would be missed
