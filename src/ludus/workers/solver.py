"""The solver: calls to a service by its name; which replica answers is not the caller's concern.

    solver = Solver()
    actions = solver.retrieve("policy", "act", observations)

A call goes to the least busy live replica whose loop turns. When a replica dies, the calls it had not started go to
another under the same number; those it had started end in `OutcomeUnknown`, because running them again could be running
them twice. Calls that may run twice (`let_move`) are also taken away from a replica that is held up.
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
from ludus.rpc.link import ClientStats, Link
from ludus.rpc.opening import OpenChannel
from ludus.workers import context

__all__ = ["Solver", "SolverStats", "let_move"]

_TICK_S = 0.05
_RETRY_AFTER_S = 0.5
_MOVE_AFTER_S = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolverStats:
    """`replicas` has the stats of each live replica, by worker name; `num_parked` calls wait for one to appear."""

    num_moved: int  # calls given to another replica because theirs died before beginning them, or was held up
    num_parked: int
    replicas: dict[str, ClientStats]


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
        self._held_up_root = spell.held_up_root(here.experiment, here.trial)
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

    def statistics(self) -> dict[str, SolverStats]:
        """By service."""
        with self._lock:
            return {name: service.statistics() for name, service in self._services.items()}

    def _service(self, name: str) -> _Service:
        with self._lock:
            service = self._services.get(name)
            if service is None:
                roots = (self._root, self._held_up_root)
                service = _Service(roots, name, self._names, self._caller, self._secret, self._opener)
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


def let_move(pending: Pending) -> Pending:
    """The call may run twice: after a few seconds without an answer, another replica gets it if its own is held up."""
    pending.move_at = time.monotonic() + _MOVE_AFTER_S
    return pending


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
        roots: tuple[str, str],
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
        self._held_up: set[str] = set()  # workers whose loop does not turn just now
        self._failed: dict[str, float] = {}  # when a replica that still has its name could not be reached
        self._retired: list[Link] = []  # not for new calls, but some of theirs are still on the way
        self._lot = _ParkingLot(self)
        self._ticket = 0
        self._num_moved = 0
        self._root, self._held_up_root = roots
        keys = [f"{root}/{name}" for root in roots]
        self._watch: Watch = names.watch_names([*keys, *map(spell.below, keys)], self._on_name)

    # -- who is there -------------------------------------------------------------------------------------------

    def _on_name(self, key: str, address: str | None) -> None:
        """The name service tells of a replica that came, moved or went."""
        if spell.is_at_or_below(key, self._held_up_root):
            self._on_held_up(key[len(self._held_up_root) + 1 :], address)
            return
        worker = key[len(self._root) + 1 :]
        self._close_idle()
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

    def _close_idle(self) -> None:
        """Hang up on those that were retired and have no call on the way. Not under the lock, which calls wait for."""
        with self._lock:
            retired, self._retired = self._retired, []
        busy = [link for link in retired if not link.close_if_idle()]
        with self._lock:
            self._retired += busy

    def _on_held_up(self, worker: str, doing: str | None) -> None:
        with self._lock:
            if doing is None:
                self._held_up.discard(worker)
            else:
                self._held_up.add(worker)

    def _link(self, address: str) -> Link:
        return Link(
            parse(address),
            self._caller,
            secret=self._secret,
            on_not_run=self._on_not_run,
            on_slow=self._on_slow,
            opener=self._opener,
        )

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
            if self._held_up and len(links) > 1:
                links = [link for link in self._turning() if link in links] or links
            if len(links) == 1:
                return links[0]
            self._ticket += 1
            turn = self._ticket % len(links)
            links = links[turn:] + links[:turn]
            return min(links, key=lambda link: link.num_in_flight + link.load)

    def _turning(self) -> list[Link]:
        """The replicas that nothing holds up, as far as is known."""
        return [link for worker, link in self._links.items() if worker not in self._held_up]

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

    def _on_slow(self, pending: Pending) -> None:
        """A call that may run twice has waited long: another replica gets it, if this one is held up and that is not.

        It is held up if it says so, if its name is gone, or if it has answered nothing since this was last looked at.
        A slow replica that answers others keeps the call: under a high load moving calls would only add to it.
        """
        slow = pending.link
        assert isinstance(slow, Link)
        pending.move_at = time.monotonic() + _MOVE_AFTER_S
        with self._lock:
            turning = self._turning()
            is_held_up = slow not in turning or pending.answers_seen == slow.num_answered
            if not is_held_up or all(link is slow for link in turning):
                pending.answers_seen = slow.num_answered
                return
            self._num_moved += 1
        pending.answers_seen = -1
        pending.tried = (slow,)
        slow.forget(pending)
        self.dispatch(pending)

    def statistics(self) -> SolverStats:
        with self._lock:
            replicas = {worker: link.statistics() for worker, link in self._links.items()}
            return SolverStats(num_moved=self._num_moved, num_parked=len(self._lot), replicas=replicas)

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
        """Keep the call until `release`; false when a replica has appeared."""
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
