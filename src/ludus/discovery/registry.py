"""`registry://…`: names kept by the driver, in memory, and reached over Ludus's own calls. Needs no other service.

    server = RegistryServer()            # in the driver
    server.start()
    names = connect(server.url)          # in any process that can reach it

Watchers are notified at once: they leave a call at the server that is answered when something changes.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, quote, unquote

from ludus import errors
from ludus.discovery.store import Feed, Record
from ludus.discovery.store_names import StoreNames
from ludus.discovery.table import Table
from ludus.rpc.address import is_loopback
from ludus.rpc.client import RpcClient
from ludus.rpc.server import Deferred, RpcServer

__all__ = ["RegistryNames", "RegistryServer", "RegistryStats", "RegistryStore"]

_TIMEOUT_S = 5.0
_RELEASE_TIMEOUT_S = 0.5
_MAX_PARKED_S = 1.0
_STEP_S = 0.1  # the server looks at its leases this often
_SLACK_S = 0.1  # how much longer a step may take before the server counts as having been held up


@dataclass(frozen=True, kw_only=True)
class RegistryStats:
    """What a registry holds now."""

    num_names: int
    num_watches: int  # calls that wait for a change
    held_up_s: float  # how long, in all, the driver kept the registry from listening


@dataclass
class _Parked:
    """A call that is answered when a name at or below `roots` changes, or at `until`."""

    answer: Deferred
    roots: list[str]
    since: int
    until: float


class RegistryServer:
    """The driver's name service: one thread that answers calls and lets leases lapse.

    With a `port` (0: any free one), or a `host` that is not loopback, other hosts can reach it; that needs a
    `secret`, as in `RpcServer`. When the driver holds it up (a stopped process, a long computation that lets
    no other thread run) no lease lapses for that: the time in which it could not hear its callers is not
    counted.
    """

    def __init__(self, port: int | None = None, *, host: str = "127.0.0.1", secret: str | None = None) -> None:
        if port is None and not is_loopback(host):
            port = 0
        self._secret = secret
        self._clock = _ListeningClock()
        self._table = Table(clock=self._clock)
        self._parked: dict[str, _Parked] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ludus-registry", daemon=True)
        self._server = RpcServer(port, host=host, secret=secret)
        handlers: list[Callable[..., Any]] = [self.put, self.await_change, self.release]
        handlers += [self._table.get, self._table.read, self._table.remove, self._table.clear]
        for handler in handlers:
            self._server.register_handler(handler.__name__, handler)

    def start(self) -> None:
        """Open the doors and begin to answer."""
        self._server.start()
        self._thread.start()

    @property
    def url(self) -> str:
        """What `discovery.connect` takes. It has the secret in it, if there is one: keep it as one."""
        secret = f":{quote(self._secret, safe='')}@" if self._secret else ""
        return f"registry://{secret}{quote(self._server.address)}"

    def close(self) -> None:
        """Stop answering; the names are gone. May be called twice."""
        self._stop.set()
        self._server.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._server.close()

    def statistics(self) -> RegistryStats:
        return RegistryStats(num_names=len(self._table), num_watches=len(self._parked), held_up_s=self._clock.held_up_s)

    def put(self, name: str, value: str, owner: str, *, ttl: float | None, replace: bool) -> bool:
        """`Store.put`, with the record's fields."""
        return self._table.put(name, Record(value=value, owner=owner, ttl=ttl), replace=replace)

    def await_change(self, feed: str, roots: list[str], since: int | None, timeout_s: float) -> Deferred:
        """Answers `[has_changed, version]` once a name at or below `roots` has changed since that version.

        Without a version to compare with, it answers at once.
        """
        self.release(feed)
        answer = Deferred()
        if since is None:
            answer.set_result([True, self._table.version])
        else:
            self._parked[feed] = _Parked(answer, roots, since, time.monotonic() + timeout_s)
        return answer

    def release(self, feed: str) -> None:
        """Answer the feed's call now, if it has one waiting."""
        parked = self._parked.pop(feed, None)
        if parked is not None:
            parked.answer.set_result([False, parked.since])

    def _run(self) -> None:
        while not self._stop.is_set():
            # First only listen: no lease must lapse before the renewals that have already arrived are counted.
            step_s = min(_STEP_S, self._table.seconds_to_lapse())
            self._server.handle_requests(0, timeout_s=step_s)
            self._clock.tick(step_s)
            self._server.handle_requests()
            self._answer_watches()

    def _answer_watches(self) -> None:
        version = self._table.version
        now = time.monotonic()
        for feed, parked in list(self._parked.items()):
            changed = self._table.has_changed(parked.roots, since=parked.since)
            parked.since = version
            if changed or parked.until <= now:
                del self._parked[feed]
                parked.answer.set_result([changed, version])


class _ListeningClock:
    """Time as the serving thread spends it: it stands still between two ticks, and leaves out hold-ups."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ticked_at = time.monotonic()
        self.held_up_s = 0.0

    def now(self) -> float:
        return self._now

    def tick(self, expected_s: float) -> None:
        """Move on by the time since the last tick, but hardly more than the `expected_s` this step was to take."""
        real = time.monotonic()
        passed = real - self._ticked_at
        self._ticked_at = real
        counted = min(passed, expected_s + _SLACK_S)
        self.held_up_s += passed - counted
        self._now += counted

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(timeout_s)


class RegistryNames(StoreNames):
    """Names at a `RegistryServer`, given the address and the secret that its url is made of."""

    def __init__(self, address: str, *, secret: str | None = None) -> None:
        super().__init__(RegistryStore(address, secret=secret))

    @classmethod
    def from_url(cls, url: SplitResult) -> RegistryNames:
        return cls(_address(url), secret=unquote(url.password) if url.password else None)


class RegistryStore:
    """A `Store` at a `RegistryServer`."""

    def __init__(self, address: str, *, secret: str | None = None) -> None:
        with _errors():
            self._client = RpcClient(address, secret=secret)
        self._address = address
        self._secret = secret

    def put(self, name: str, record: Record, *, replace: bool) -> bool:
        options = {"ttl": record.ttl, "replace": replace}
        return bool(self._call("put", [name, record.value, record.owner], options))

    def get(self, name: str) -> str | None:
        value: str | None = self._call("get", [name])
        return value

    def read(self, root: str) -> dict[str, str]:
        found: dict[str, str] = self._call("read", [root])
        return found

    def remove(self, name: str, *, owner: str | None) -> bool:
        return bool(self._call("remove", [name], {"owner": owner}))

    def clear(self, root: str) -> None:
        self._call("clear", [root])

    def follow(self, roots: Sequence[str]) -> Feed:
        # A client of its own: a call that waits would make the others queue behind it.
        with _errors():
            return _ChangeFeed(RpcClient(self._address, secret=self._secret), list(roots), self._release)

    def close(self) -> None:
        self._client.close()

    def _release(self, feed: str) -> None:
        with contextlib.suppress(errors.DiscoveryError):  # out of reach: nobody waits there either
            self._call("release", [feed], timeout_s=_RELEASE_TIMEOUT_S)

    def _call(
        self, command: str, args: list[Any], kwargs: dict[str, Any] | None = None, *, timeout_s: float = _TIMEOUT_S
    ) -> Any:
        with _errors():
            return self._client.call(command, args, kwargs, timeout_s=timeout_s)


class _ChangeFeed:
    def __init__(self, client: RpcClient, roots: list[str], release: Callable[[str], None]) -> None:
        self._client = client
        self._roots = roots
        self._release = release
        self._id = uuid.uuid4().hex
        self._seen: int | None = None
        self._closed = threading.Event()
        self._calling = threading.Lock()

    def wait(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._calling:
            while not self._closed.is_set():
                left = deadline - time.monotonic()
                if left <= 0 or self._ask(min(left, _MAX_PARKED_S)):
                    return

    def close(self) -> None:
        self._closed.set()
        self._release(self._id)
        with self._calling:
            self._client.close()

    def _ask(self, timeout_s: float) -> bool:
        with _errors():
            args = [self._id, self._roots, self._seen, timeout_s]
            changed, self._seen = self._client.call("await_change", args, timeout_s=timeout_s + _TIMEOUT_S)
        return bool(changed)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except errors.RpcError as error:
        raise errors.DiscoveryError(f"the registry of names does not answer: {error}") from error


def _address(url: SplitResult) -> str:
    return unquote(url.netloc.rpartition("@")[2])  # not url.hostname: that is lower case
