"""Calls of one process to the workers of a model.

client = ModelClient(open_workers, "model-policy", Layouts("policy"))
client.submit(12, (image,), {}, sink, token)      # one row; rows of many callers go as few messages
asked = client.ask(12, (images,), {})             # rows, for callers that wait
asked.result()                                    # by version 12 and no other

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
from typing import Any, Protocol

import numpy as np

from ludus import errors
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.rows import Layouts
from ludus.models.request import Request, Sink, deliver, split
from ludus.models.verify import Verification
from ludus.rpc.call import Pending
from ludus.workers.solver import let_move

__all__ = ["Asked", "ModelClient"]

_log = logging.getLogger(__name__)
_TICK_S = 0.05
_RETRY_AFTER_S = 0.02
_MAX_WAITING = 65_536


class _Workers(Protocol):
    """`ludus.workers.remote.Remote`."""

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending: ...

    def within(self, timeout_s: float) -> _Workers: ...


class Asked:
    """A call of rows on its way. If its worker is lost or held up, another gets it, for `timeout_s`."""

    def __init__(self, workers: _Workers, arguments: tuple[Any, ...], timeout_s: float) -> None:
        self._workers = workers
        self._arguments = arguments
        self._until = time.monotonic() + timeout_s
        self._pending = let_move(workers.submit("forward", *arguments))
        self.version: int | None = None  # that ran, once there is a result

    @property
    def done(self) -> bool:
        """Whether `result` would not wait; an answer is received by waiting, or by `ludus.rpc.client.wait_any`."""
        return self._pending.done and not isinstance(self._pending.error, errors.LOST)

    @property
    def pending(self) -> Pending:
        """For `wait_any`."""
        return self._pending

    def result(self) -> Any:
        """The outputs. Raises what the worker did."""
        while True:
            try:
                answer = self._pending.result()
                self.version = answer["version"]
                return answer["outputs"]
            except errors.LOST:
                if time.monotonic() >= self._until:
                    raise
            time.sleep(_RETRY_AFTER_S)
            self._pending = let_move(self._workers.submit("forward", *self._arguments))


class _Flight:
    """Single rows by one version that travel together."""

    def __init__(self, requests: list[Request], until: float) -> None:
        self.requests = requests
        self.until = until
        self.not_before = 0.0
        self.pending: Pending | None = None
        layout = requests[0].layout
        columns = zip(*[request.leaves for request in requests], strict=True)
        self.call = layout.nest([None if column[0] is None else np.concatenate(column) for column in columns])


class ModelClient:
    """Calls go to the least busy worker; `timeout_s` is all the time that a call has. Safe to share between threads.

    `open_workers` is called once, when it is needed: it makes sure that there are workers, and may take its time.
    """

    def __init__(
        self,
        open_workers: Callable[[], _Workers],
        node: str,
        layouts: Layouts | None = None,
        *,
        num_workers: int = 1,
        max_batch: int = 256,
        timeout_s: float = 30.0,
    ) -> None:
        self._open_workers = open_workers
        self._workers: _Workers | None = None
        self._error: BaseException | None = None
        self._node = node
        self._layouts = layouts or Layouts(node)
        self._num_workers = num_workers
        self._max_batch = max_batch
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[float, Request]] = deque()
        self._flights: list[_Flight] = []
        self._is_closed = False
        self._is_idle = False
        self._opening, self._starting = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell = -1
        self._tend_at = 0.0

    @classmethod
    def of(cls, workers: _Workers, *, timeout_s: float = 60.0) -> ModelClient:
        """Of workers that are there."""
        return cls(lambda: workers, repr(workers), timeout_s=timeout_s)

    def ask(self, version: int | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked:
        """Ask for the outputs of rows and go on. The arrays must not change before there is a result."""
        named = version if isinstance(version, str) else int(version)
        return Asked(self._open(), (named, args, kwargs), self._timeout_s)

    def submit(self, version: int | str, args: tuple[Any, ...], kwargs: dict[str, Any], sink: Sink, token: Any) -> None:
        """`Inference.submit`."""
        layout, leaves = self._layouts.take(args, kwargs)
        if len(self._waiting) >= _MAX_WAITING:
            raise errors.Overloaded(f"{_MAX_WAITING} calls wait for {self._node}, as many as allowed; not run")
        request = Request(version, layout, leaves, 1, True, sink, token)
        self._waiting.append((time.monotonic() + self._timeout_s, request))
        if self._thread is None:
            self._start()
        if self._is_closed:
            self._fail_all(self._gone())
        elif self._is_idle:
            self._is_idle = False
            os.eventfd_write(self._bell, 1)

    def verification(self, *, again: bool = False) -> Verification:
        """`Inference.verification`, by one of the workers."""
        return Verification.from_nest(self._call("verification", again))

    def stats(self) -> dict[str, Any]:
        """Of one of the workers."""
        stats: dict[str, Any] = self._call("stats")
        return stats

    def _call(self, command: str, *args: Any) -> Any:
        if self._is_closed:
            raise self._gone()
        return self._open().within(self._timeout_s).submit(command, *args).result()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def _open(self) -> _Workers:
        with self._opening:
            if self._workers is None:
                self._workers = self._open_workers()
            return self._workers

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._is_closed:
                self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                self._thread = threading.Thread(target=self._live, daemon=True, name=self._node)
                self._thread.start()

    # -- the thread -----------------------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            workers = self._open()
            while not self._is_closed:
                self._send(workers)
                self._wait()
                self._settle()
        except Exception as error:  # calls that wait fail; later ones find it closed
            self._error = error
            self._is_closed = True
            _log.exception("calls of %s cannot be sent any more", self._node)
            self._fail_all(error)

    def _send(self, workers: _Workers) -> None:
        """Send again what was lost, and what waits, as long as the workers have less than two messages each."""
        now = time.monotonic()
        for flight in self._flights:
            if flight.pending is None and now >= flight.not_before:
                self._launch(workers, flight)
        while self._waiting and len(self._flights) < 2 * self._num_workers:
            share = -(-len(self._waiting) // max(1, self._num_workers - len(self._flights)))
            for flight in self._gather(min(self._max_batch, share)):
                self._flights.append(flight)
                self._launch(workers, flight)

    def _gather(self, num_rows: int) -> list[_Flight]:
        groups: dict[tuple[int | str, int], list[Request]] = {}
        until = 0.0
        for _ in range(num_rows):
            until, request = self._waiting.popleft()
            groups.setdefault((request.version, id(request.layout)), []).append(request)
        return [_Flight(requests, until) for requests in groups.values()]

    def _launch(self, workers: _Workers, flight: _Flight) -> None:
        left = max(0.0, flight.until - time.monotonic())
        call = workers.within(left).submit("forward", flight.requests[0].version, *flight.call)
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
        if isinstance(error, errors.LOST) and time.monotonic() < flight.until:
            flight.pending = None
            flight.not_before = time.monotonic() + _RETRY_AFTER_S
            return
        if error is None:
            try:
                answer = pending.result()
                deliver(requests, split(nests.map(_own, answer["outputs"]), requests), answer["version"])
            except errors.DataError as wrong:
                self._fail(requests, wrong)
        elif len(requests) > 1 and not isinstance(error, errors.UNANSWERED):
            self._flights += [_Flight([request], flight.until) for request in requests]  # one row may be to blame
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
        """`Inference.abandon`."""
        self._is_closed = True

    def close(self) -> None:
        """`Inference.close`."""
        if self._is_closed:
            return
        self._is_closed = True
        thread = self._thread
        if thread is not None:
            os.eventfd_write(self._bell, 1)
            if thread is not threading.current_thread():
                thread.join(5.0)
        self._fail_all(self._gone())


def _own(leaf: Nest) -> Nest:
    """In memory of its own: what came through shared memory occupies its place there."""
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
