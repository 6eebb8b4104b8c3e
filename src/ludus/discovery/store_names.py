"""`StoreNames`: the whole of `core.Names`, made out of a `Store`."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence

from ludus import errors
from ludus.core import NameCallback, Watch
from ludus.discovery import names as spelling
from ludus.discovery.keepalive import KeepAlive
from ludus.discovery.store import Record, Store
from ludus.discovery.watching import Watcher

__all__ = ["StoreNames"]

log = logging.getLogger(__name__)

_DEFAULT_WAIT_S = 60.0
_RESYNC_S = 5.0  # how often to look even if a feed has nothing to say


class StoreNames:
    """`core.Names` on a `Store`, which it owns. See there for the contract of each method."""

    def __init__(self, store: Store, *, renewals_per_ttl: int = 3) -> None:
        self._store = store
        self._owners: dict[str, str] = {}  # name → token of this object's last add
        # Held over each write together with its book-keeping, and over each renewal: a renewal that ran
        # between the two would bring a deleted name back.
        self._writing = threading.RLock()
        self._keepalive = KeepAlive(self._renew, renewals_per_ttl=renewals_per_ttl)
        self._watchers: set[Watcher] = set()
        self._closed = False

    def add(
        self,
        name: str,
        value: str,
        *,
        ttl: float | None = None,
        replace: bool = False,
        on_taken: Callable[[], None] | None = None,
    ) -> None:
        spelling.check(name)
        if not isinstance(value, str):
            raise errors.DiscoveryError(f"the value of {name!r} must be a string, not {type(value).__name__}")
        if ttl is not None and not 0 < ttl < float("inf"):
            raise errors.DiscoveryError(
                f"a ttl of {ttl!r} s for {name!r}: it must be more than 0, or None for no lease"
            )
        record = Record(value=value, owner=uuid.uuid4().hex, ttl=ttl)
        with self._writing:
            self._check_open()
            if not self._store.put(name, record, replace=replace):
                raise errors.NameTaken(f"{name!r} is taken. Give replace=True to take it over.")
            self._owners[name] = record.owner
            self._keepalive.drop(name)
            if ttl is not None:
                self._keepalive.hold(name, record, on_taken=on_taken)

    def get(self, name: str) -> str:
        spelling.check(name)
        self._check_open()
        value = self._store.get(name)
        if value is None:
            raise errors.NameNotFound(f"there is no name {name!r}")
        return value

    def get_subtree(self, root: str) -> list[str]:
        return [value for _, value in self._read(root)]

    def find_subtree(self, root: str) -> list[str]:
        return [name for name, _ in self._read(root)]

    def wait(self, name: str, timeout: float | None = None) -> str:
        spelling.check(name)
        self._check_open()
        timeout_s = _DEFAULT_WAIT_S if timeout is None else timeout
        deadline = time.monotonic() + timeout_s
        if (value := self._store.get(name)) is not None:
            return value
        feed = self._store.follow([name])
        try:
            while (value := self._store.get(name)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise errors.NameTimeout(f"{name!r} did not appear within {timeout_s:g} s. {self._beside(name)}")
                feed.wait(min(left, _RESYNC_S))
                self._check_open()
            return value
        finally:
            feed.close()

    def watch_names(self, names: str | Sequence[str], callback: NameCallback) -> Watch:
        with self._writing:
            self._check_open()
            watcher = Watcher(self._store, [names] if isinstance(names, str) else names, callback, resync_s=_RESYNC_S)
            watcher.start()
            self._watchers = {each for each in self._watchers if each.is_running} | {watcher}
        return watcher

    def delete(self, name: str) -> None:
        spelling.check(name)
        with self._writing:
            self._check_open()
            self._keepalive.drop(name)
            owner = self._owners.get(name)
            if self._store.remove(name, owner=owner):
                self._owners.pop(name, None)
                return
        since = ": what this object added is gone, and what others add is not its to delete" if owner else ""
        raise errors.NameNotFound(f"there is no name {name!r} to delete{since}")

    def clear_subtree(self, root: str) -> None:
        spelling.check(root)
        with self._writing:
            self._check_open()
            for name in [name for name in self._owners if spelling.is_at_or_below(name, root)]:
                self._keepalive.drop(name)
                del self._owners[name]
            self._store.clear(root)

    def close(self) -> None:
        with self._writing:
            if self._closed:
                return
            self._closed = True
            leases = self._keepalive.held()
        self._keepalive.close()
        for watcher in self._watchers:
            watcher.close()
        try:
            for name, record in leases.items():
                self._store.remove(name, owner=record.owner)
        except errors.DiscoveryError as error:
            log.warning("could not remove %s on closing; they lapse by themselves: %s", sorted(leases), error)
        finally:
            self._store.close()

    def _renew(self, name: str, record: Record) -> bool:
        with self._writing:
            if not self._keepalive.holds(name, record):  # dropped while this thread was on its way
                return True
            return self._store.put(name, record, replace=False)

    def _read(self, root: str) -> list[tuple[str, str]]:
        spelling.check(root)
        self._check_open()
        return sorted(self._store.read(root).items())

    def _beside(self, name: str) -> str:
        """What there is instead, for the message of a timeout."""
        parent, _, _ = name.rpartition("/")
        if not parent:
            return ""
        try:
            return spelling.nearest(name, self._store.read(parent))
        except errors.DiscoveryError as error:
            return f"(And now: {error})"

    def _check_open(self) -> None:
        if self._closed:
            raise errors.DiscoveryError("this connection to the name service was closed")
