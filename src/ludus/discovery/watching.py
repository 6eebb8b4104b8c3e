"""Watches: look at some names whenever a feed says so, and tell a callback what is different."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from ludus import errors
from ludus.core import NameCallback
from ludus.discovery import names as spelling
from ludus.discovery.store import Feed, Store

__all__ = ["PollFeed", "Watcher"]

log = logging.getLogger(__name__)

_RETRY_S = 0.2


class PollFeed:
    """The feed of a backend that cannot tell of changes: look again every `period_s`."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._closed = threading.Event()

    def wait(self, timeout_s: float) -> None:
        self._closed.wait(min(timeout_s, self._period_s))

    def close(self) -> None:
        self._closed.set()


class Watcher:
    """One `watch_names`: a thread that compares what it reads with what it last reported.

    While the backend is out of reach nothing is reported; changes made by then are reported afterwards.
    """

    def __init__(self, store: Store, names: Sequence[str], callback: NameCallback, *, resync_s: float) -> None:
        self._store = store
        self._names = [name for name in names if not name.endswith("/")]
        self._roots = [name.removesuffix("/") for name in names if name.endswith("/")]
        for name in self._names + self._roots:
            spelling.check(name)
        self._callback = callback
        self._resync_s = resync_s
        self._reported: dict[str, str | None] = {}
        self._failing = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ludus-watch", daemon=True)
        self._feed: Feed | None = None
        self._first: dict[str, str | None] = {}

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Read the present state, raising `DiscoveryError` if that fails, and start to tell."""
        self._feed = self._store.follow(self._names + self._roots)
        try:
            self._first = self._look()
        except errors.DiscoveryError:
            self._feed.close()
            raise
        self._thread.start()

    def close(self) -> None:
        """End the watch: once this returns no callback is made, except the one that called it, if one did."""
        self._stopped.set()
        if self._feed is not None:
            self._feed.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        assert self._feed is not None
        self._tell(self._first)
        while not self._stopped.is_set():
            try:
                if not self._failing:  # its news would be lost if looking failed again
                    self._feed.wait(self._resync_s)
                if self._stopped.is_set():
                    return
                state = self._look()
            except errors.DiscoveryError as error:
                self._fail(error)
                continue
            if self._failing:
                log.warning("the watch of %s goes on", self._names + self._roots)
                self._failing = False
            self._tell(state)

    def _look(self) -> dict[str, str | None]:
        state: dict[str, str | None] = {name: self._store.get(name) for name in self._names}
        for root in self._roots:
            below = self._store.read(root)
            below.pop(root, None)
            state.update(below)
        return state

    def _tell(self, state: dict[str, str | None]) -> None:
        for name in sorted(self._reported.keys() | state.keys()):
            value = state.get(name)
            if name in self._reported and self._reported[name] == value:
                continue
            if value is None and name not in self._names:
                del self._reported[name]
            else:
                self._reported[name] = value
            if self._stopped.is_set():
                return
            try:
                self._callback(name, value)
            except Exception:
                log.exception("the callback of a watch raised at %r; the watch goes on", name)

    def _fail(self, error: errors.DiscoveryError) -> None:
        if not self._failing:
            log.warning("the watch of %s cannot look; trying on: %s", self._names + self._roots, error)
            self._failing = True
        self._stopped.wait(_RETRY_S)
