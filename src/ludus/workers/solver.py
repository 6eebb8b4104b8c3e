"""The solver: calls to a service by its name; which replica answers is not the caller's concern.

    solver = Solver()
    actions = solver.retrieve("policy", "act", observations)

A call goes to the least busy live replica. When a replica dies, the calls it had not begun go to another under the same
number; those it had begun end in `OutcomeUnknown`, because running them again could be running them twice.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ludus import errors
from ludus.core import Names, Watch
from ludus.data import codec
from ludus.discovery import names as spell
from ludus.rpc.address import host_id, parse
from ludus.rpc.call import Caller, Pending, new_call
from ludus.rpc.link import ClientStatistics, Link
from ludus.rpc.opening import OpenChannel
from ludus.workers import context

__all__ = ["Solver", "SolverStatistics"]

_TICK_S = 0.05
_RETRY_AFTER_S = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolverStatistics:
    """`replicas` has the figures of each live replica, by worker name; `num_parked` calls wait for one to appear."""

    num_moved: int  # calls given to another replica because theirs died before beginning them
    num_parked: int
    replicas: dict[str, ClientStatistics]


class Solver:
    """Safe to share between threads. Without arguments, for the trial that this process belongs to."""

    def __init__(
        self,
        experiment: str | None = None,
        trial: str | None = None,
        *,
        names: Names | None = None,
        secret: str | None = None,
        timeout_s: float = 60.0,
        opener: OpenChannel | None = None,
    ) -> None:
        here = context.complete(experiment, trial, names, secret)
        self._root = spell.worker_root(here.experiment, here.trial)
        self._names = here.names
        self._secret = here.secret
        self._timeout_s = timeout_s
        self._opener = opener
        self._caller = Caller()
        self._lock = threading.RLock()
        self._services: dict[str, _Service] = {}

    def retrieve(self, worker: object, func: str, *args: Any, **kwargs: Any) -> Any:
        """Run `func(*args, **kwargs)` at a replica of `worker` and wait for its result.

        `worker` is a service's name, a worker's name (`policy/0`), or an object or class whose name is meant.
        """
        return self.submit(worker, func, args, kwargs).result()

    retrive = retrieve  # the seed's spelling

    def submit(
        self,
        worker: object,
        func: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Pending:
        """`retrieve` without waiting: the result is had by `.result()`."""
        service = self._service(service_name(worker))
        timeout = self._timeout_s if timeout_s is None else timeout_s
        pending = new_call(self._caller, func, args, kwargs, timeout, codec.DEFAULT_LIMITS)
        service.dispatch(pending)
        return pending

    def replicas(self, worker: object) -> list[str]:
        """The live replicas of a service, by worker name."""
        return self._service(service_name(worker)).live()

    def statistics(self) -> dict[str, SolverStatistics]:
        """By service."""
        with self._lock:
            return {name: service.statistics() for name, service in self._services.items()}

    def _service(self, name: str) -> _Service:
        with self._lock:
            service = self._services.get(name)
            if service is None:
                service = _Service(self._root, name, self._names, self._caller, self._secret, self._opener)
                self._services[name] = service
            return service

    def close(self) -> None:
        """Hang up everywhere. Doing it twice does nothing."""
        with self._lock:
            services, self._services = self._services, {}
        for service in services.values():
            service.close()

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def service_name(worker: object) -> str:
    """The name that is meant: a string itself, otherwise the object's `service_name` or its class's name."""
    if isinstance(worker, str):
        return worker
    named = getattr(worker, "service_name", None)
    if isinstance(named, str):
        return named
    return (worker if isinstance(worker, type) else type(worker)).__name__


class _Service:
    """The replicas of one service, and the calls that wait for one."""

    def __init__(
        self,
        root: str,
        name: str,
        names: Names,
        caller: Caller,
        secret: str | None,
        opener: OpenChannel | None,
    ) -> None:
        self._name = name
        self._caller = caller
        self._secret = secret
        self._opener = opener
        self._lock = threading.RLock()
        self._links: dict[str, Link] = {}  # by worker name
        self._addresses: dict[str, str] = {}
        self._failed: dict[str, float] = {}  # when a replica that still has its name could not be reached
        self._retired: list[Link] = []  # not for new calls, but some of theirs are still on the way
        self._lot = _ParkingLot(self)
        self._ticket = 0
        self._num_moved = 0
        key = f"{root}/{name}"
        self._key_start = len(root) + 1
        self._watch: Watch = names.watch_names([key, spell.below(key)], self._on_name)

    # -- who is there -------------------------------------------------------------------------------------------

    def _on_name(self, key: str, address: str | None) -> None:
        """The name service tells of a replica that came, moved or went."""
        worker = key[self._key_start :]
        with self._lock:
            if self._addresses.get(worker) == address:
                return
            if address is None:
                self._addresses.pop(worker, None)
            else:
                self._addresses[worker] = address
            self._failed.pop(worker, None)
            old = self._links.pop(worker, None)
            if old is not None:
                self._retire(old)
            if address is not None:
                try:
                    self._links[worker] = self._link(address)
                except errors.Unreachable:
                    self._addresses.pop(worker, None)
                    raise
        if address is not None:
            self._lot.release()

    def _link(self, address: str) -> Link:
        return Link(parse(address), self._caller, secret=self._secret, on_not_run=self._on_not_run, opener=self._opener)

    def revive(self) -> bool:
        """Try again the replicas that could not be reached a while ago and still have their names."""
        horizon = time.monotonic() - _RETRY_AFTER_S
        with self._lock:
            due = [worker for worker, since in self._failed.items() if since < horizon]
            for worker in due:
                del self._failed[worker]
                self._links[worker] = self._link(self._addresses[worker])
        return bool(due)

    def _retire(self, link: Link) -> None:
        """No new calls. On this host the connection itself tells when the replica is dead; elsewhere its name did."""
        self._retired = [old for old in self._retired if old.num_in_flight]
        if link.address.host == host_id():
            self._retired.append(link)
        else:
            link.declare_lost(f"a replica of {self._name} left the name service")

    def live(self) -> list[str]:
        with self._lock:
            return sorted(self._links)

    # -- calls --------------------------------------------------------------------------------------------------

    def dispatch(self, pending: Pending) -> None:
        """Give the call to the least busy replica that has not failed it, or park it until there is one."""
        while not pending.done:
            link = self._pick(pending)
            if link is None:
                if self._lot.park(pending):
                    return
                continue  # a replica came in between
            pending.tried += (link,)
            link.send(pending)
            return

    def _pick(self, pending: Pending) -> Link | None:
        if self._failed:
            self.revive()
        with self._lock:
            links = [link for link in self._links.values() if link not in pending.tried]
            if not links:
                return None
            if len(links) == 1:
                return links[0]
            self._ticket += 1
            turn = self._ticket % len(links)
            links = links[turn:] + links[:turn]
            return min(links, key=lambda link: link.num_in_flight + link.load)

    def has_untried(self, pending: Pending) -> bool:
        return self._pick(pending) is not None

    def _on_not_run(self, pending: Pending, error: errors.RpcError) -> bool:
        """A replica could not be reached before it began the call: another may have it."""
        if not isinstance(error, errors.Unreachable) or time.monotonic() >= pending.deadline:
            return False
        failed = pending.link
        with self._lock:
            for worker, link in list(self._links.items()):
                if link is failed:
                    del self._links[worker]
                    self._failed[worker] = time.monotonic()
            self._num_moved += 1
        self.dispatch(pending)
        return True

    def statistics(self) -> SolverStatistics:
        with self._lock:
            replicas = {worker: link.statistics() for worker, link in self._links.items()}
            return SolverStatistics(num_moved=self._num_moved, num_parked=len(self._lot), replicas=replicas)

    def close(self) -> None:
        self._watch.close()
        with self._lock:
            links = [*self._links.values(), *self._retired]
            self._links.clear()
            self._retired.clear()
        for link in links:
            link.close()
        self._lot.close()


class _ParkingLot:
    """Stands in for a link while no replica is there: calls wait here, each no longer than its deadline."""

    def __init__(self, service: _Service) -> None:
        self._service = service
        self._guard = threading.Lock()
        self._parked: dict[int, Pending] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, pending: Pending) -> bool:
        """Keep the call until `release`; false when a replica appeared meanwhile."""
        with self._guard:
            pending.link = self
            self._parked[pending.seq] = pending
        taken_back = self._service.has_untried(pending) and self._parked.pop(pending.seq, None) is not None
        return not taken_back

    def release(self) -> None:
        """A replica came: send on what waits."""
        with self._guard:
            parked, self._parked = self._parked, {}
        for pending in parked.values():
            self._service.dispatch(pending)
            if pending.event is not None:
                pending.event.set()

    def wait(self, pending: Pending) -> None:
        while not pending.done and pending.link is self:
            if pending.event is None:
                pending.event = threading.Event()
            pending.event.wait(_TICK_S)
            pending.event.clear()
            self.tend()

    def pump(self) -> None:
        self.tend()

    def tend(self) -> None:
        if self._service.revive():
            self.release()
        now = time.monotonic()
        for seq, pending in list(self._parked.items()):
            if now >= pending.deadline and self._parked.pop(seq, None) is not None:
                self._end(
                    pending,
                    errors.Unreachable(
                        f"no live replica of {self._service._name!r} to run {pending.command!r}; it was not run"
                    ),
                )

    def _end(self, pending: Pending, error: Exception) -> None:
        self._service._caller.settle(pending.seq)
        pending.finish(None, error)

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        with self._guard:
            parked, self._parked = self._parked, {}
        for pending in parked.values():
            self._end(pending, errors.Unreachable("the solver was closed; the call was not run"))
