"""Calls of one process to the workers of a model: gathered while the workers are busy, and sent as few messages.

client = ModelClient(open_workers, "model-policy", Layouts("policy"))
client.start()
client.submit(12, (image,), {}, sink, token)      # from any thread; `sink` is told, once for each message

A forward pass changes nothing, so one that was lost with its worker, or whose worker is held up, is sent to another,
until its time is up.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ludus import errors
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.rpc.call import Pending
from ludus.services.model.request import Request, Sink, deliver, split
from ludus.services.model.rows import Layouts
from ludus.workers.solver import Solver, let_move

__all__ = ["ModelClient"]

_log = logging.getLogger(__name__)
_LOST = (errors.Unreachable, errors.OutcomeUnknown)
_SHARED = (*_LOST, errors.DeadlineExceeded, errors.Overloaded)  # no row's own fault
_TICK_S = 0.05
_RETRY_AFTER_S = 0.02
_MAX_WAITING = 65_536


class _Flight:
    """Requests of one version that travel together."""

    def __init__(self, requests: list[Request], until: float) -> None:
        self.requests = requests
        self.until = until
        self.not_before = 0.0
        self.pending: Pending | None = None
        layout = requests[0].layout
        columns = zip(*[request.leaves for request in requests], strict=True)
        self.call = layout.nest([None if column[0] is None else np.concatenate(column) for column in columns])


class ModelClient:
    """Calls go to whichever worker of `node` is least busy; `timeout_s` is all the time that a call has.

    `open_workers` is called once, by the client's thread: it sees to it that there are workers, and may take its time.
    """

    def __init__(
        self,
        open_workers: Callable[[], Solver],
        node: str,
        layouts: Layouts,
        *,
        num_workers: int = 1,
        max_batch: int = 256,
        timeout_s: float = 30.0,
    ) -> None:
        self._open_workers = open_workers
        self._solver: Solver | None = None
        self._is_open = threading.Event()
        self._error: BaseException | None = None
        self._node = node
        self._layouts = layouts
        self._num_workers = num_workers
        self._max_batch = max_batch
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[float, Request]] = deque()
        self._flights: list[_Flight] = []
        self._is_closed = False
        self._is_idle = False
        self._tend_at = 0.0
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._live, daemon=True, name=node)

    def start(self) -> None:
        self._thread.start()

    def submit(self, version: int, args: tuple[Any, ...], kwargs: dict[str, Any], sink: Sink, token: Any) -> None:
        """Ask for the outputs of one row, without a row axis. The arrays must not change before there is an outcome.

        Raises `SpecError` for what the model cannot take, and `Overloaded` if too many wait.
        """
        layout, leaves = self._layouts.take(args, kwargs)
        if len(self._waiting) >= _MAX_WAITING:
            raise errors.Overloaded(f"{_MAX_WAITING} calls wait for {self._node}, as many as allowed; not run")
        request = Request(version, layout, leaves, 1, True, sink, token)
        self._waiting.append((time.monotonic() + self._timeout_s, request))
        if self._is_closed:
            self._fail_all(self._gone())
        elif self._is_idle:
            self._is_idle = False
            os.eventfd_write(self._bell, 1)

    def ask(self, command: str, *args: Any) -> Any:
        """Another command, at one of the workers; waits for its result."""
        if not self._is_open.wait(self._timeout_s):
            raise errors.DeadlineExceeded(f"{self._node} was not there in {self._timeout_s:g} s")
        if self._solver is None:
            raise self._gone()
        return self._solver.submit(self._node, command, args, timeout_s=self._timeout_s).result()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # -- the thread -----------------------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            self._solver = self._open_workers()
            self._is_open.set()
            while not self._is_closed:
                self._send()
                self._wait()
                self._settle()
        except Exception as error:  # who waits is told; who comes later finds it closed
            self._error = error
            self._is_closed = True
            _log.exception("calls of %s cannot be sent any more", self._node)
            self._is_open.set()
            self._fail_all(error)

    def _send(self) -> None:
        """Send again what was lost, and what waits, as long as the workers have less than two messages each."""
        now = time.monotonic()
        for flight in self._flights:
            if flight.pending is None and now >= flight.not_before:
                self._launch(flight)
        while self._waiting and len(self._flights) < 2 * self._num_workers:
            share = -(-len(self._waiting) // max(1, self._num_workers - len(self._flights)))
            for flight in self._gather(min(self._max_batch, share)):
                self._flights.append(flight)
                self._launch(flight)

    def _gather(self, num_rows: int) -> list[_Flight]:
        groups: dict[tuple[int, int], list[Request]] = {}
        until = 0.0
        for _ in range(num_rows):
            until, request = self._waiting.popleft()
            groups.setdefault((request.version, id(request.layout)), []).append(request)
        return [_Flight(requests, until) for requests in groups.values()]

    def _launch(self, flight: _Flight) -> None:
        left = max(0.0, flight.until - time.monotonic())
        args, kwargs = flight.call
        version = flight.requests[0].version
        assert self._solver is not None, "open by now"
        call = self._solver.submit(self._node, "forward", (version, args, kwargs), timeout_s=left)
        flight.pending = let_move(call)

    def _wait(self) -> None:
        """Until an answer has come, or a call, or a tick has passed."""
        under_way = [flight.pending for flight in self._flights if flight.pending is not None]
        links = {id(pending.link): pending.link for pending in under_way if pending.link is not None}.values()
        for link in links:
            link.pump()
        if any(pending.done for pending in under_way):
            return
        self._is_idle = True
        if self._waiting and len(self._flights) < 2 * self._num_workers:  # it came in between
            self._is_idle = False
            return
        poller = select.poll()
        poller.register(self._bell, select.POLLIN)
        for link in links:
            fd = link.fileno()
            if fd is not None:
                poller.register(fd, select.POLLIN)
        is_lost = len(under_way) < len(self._flights)
        ready = poller.poll((_RETRY_AFTER_S if is_lost else _TICK_S if under_way else 20 * _TICK_S) * 1e3)
        self._is_idle = False
        if any(fd == self._bell for fd, _event in ready):
            os.eventfd_read(self._bell)
        is_time = time.monotonic() >= self._tend_at  # also while others answer: one worker may be held up
        for link in links:
            link.pump()
            if is_time or not ready:
                link.tend()
        if is_time:
            self._tend_at = time.monotonic() + _TICK_S

    def _settle(self) -> None:
        for flight in list(self._flights):
            if flight.pending is not None and flight.pending.done:
                self._land(flight, flight.pending)

    def _land(self, flight: _Flight, pending: Pending) -> None:
        error = pending.error
        requests = flight.requests
        if isinstance(error, _LOST) and time.monotonic() < flight.until:
            flight.pending = None
            flight.not_before = time.monotonic() + _RETRY_AFTER_S
            return
        if error is None:
            try:
                deliver(requests, split(nests.map(_own, pending.result()), requests))
            except errors.DataError as wrong:
                self._fail(requests, wrong)
        elif len(requests) > 1 and not isinstance(error, _SHARED):
            self._flights += [_Flight([request], flight.until) for request in requests]  # it may be one row's fault
        else:
            self._fail(requests, error)
        self._flights.remove(flight)

    # -- the end --------------------------------------------------------------------------------------------------

    def _gone(self) -> BaseException:
        return self._error or errors.Unreachable(f"{self._node} is closed here; the call was not run")

    def _fail(self, requests: list[Request], error: BaseException) -> None:
        for request in requests:
            request.sink.fail([request.token], error)

    def _fail_all(self, error: BaseException) -> None:
        flights, self._flights = self._flights, []
        for flight in flights:
            self._fail(flight.requests, error)
        while self._waiting:
            try:
                self._fail([self._waiting.popleft()[1]], error)
            except IndexError:  # another thread does the same
                return

    def abandon(self) -> None:
        """In a child that was forked: its thread is the parent's, so it is closed here."""
        self._is_closed = True

    def close(self) -> None:
        """Send nothing more. Doing it twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        os.eventfd_write(self._bell, 1)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(5.0)
        self._is_open.set()
        self._fail_all(self._gone())


def _own(leaf: Nest) -> Nest:
    """In memory of its own: what came through shared memory holds its place there."""
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
