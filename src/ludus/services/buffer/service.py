"""The buffer as a service: a push is answered when its segment is queued, a take when there is enough.

With `of="nest"` it is of any nests: `push_many` and `take_some` are for those.

A trainer can own one in its own process:

    self.buffer = BufferService(capacity=16)
    server.register_service(self.buffer)        # its worker's server answers push
    items = self.buffer.fifo.take(8)            # in the same thread: never waits, [] when there are fewer

What arrives is kept as it arrived. Arrays that came through shared memory stay where they are, valid and unchanged, for
as long as they are held; the trainer's concatenation is the first copy. Until then they take room in their producer's
64 MiB of shared memory; a producer that has none left sends through its socket, which is slower and just as right.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ludus import errors
from ludus.data.nest import Nest
from ludus.rpc import deadline
from ludus.rpc.deferred import Deferred
from ludus.services.buffer.fifo import FifoBuffer, Item
from ludus.workers.register import register

__all__ = ["BufferService"]


class _Take:
    """A consumer that waits for enough segments, until its time is up."""

    def __init__(
        self, num_segments: int | None, min_rows: int | None, at_least: int | None, pack: Callable[[list[Item]], Any]
    ) -> None:
        self.num_segments = num_segments
        self.min_rows = min_rows
        self.at_least = at_least
        self.answer = Deferred()
        self.timer: threading.Timer | None = None
        self._pack = pack

    def end(self, items: list[Item]) -> None:
        self._stop()
        self.answer.set_result(self._pack(items))

    def fail(self, error: errors.LudusError) -> None:
        self._stop()
        self.answer.set_error(error)

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class BufferService:
    """Commands: `push`, `push_many`, `take`, `take_some`, `give_back`, `statistics`.

    In its own process use `fifo` itself.
    """

    def __init__(self, capacity: int, *, of: str = "segment") -> None:
        self.fifo = FifoBuffer(capacity=capacity, of=of)
        self._lock = threading.RLock()
        self._takes: list[_Take] = []

    @register
    def push(self, segment: Nest, segment_id: str) -> Deferred | None:
        """Queue a segment; answered once it is. The same id again is answered too, and queued once only."""
        queued = Deferred()

        def answer(error: errors.LudusError | None) -> None:
            if error is None:
                queued.set_result(None)
            else:
                queued.set_error(error)

        self.fifo.offer(self.fifo.kind.read(segment), segment_id=segment_id, on_queued=answer)
        if self._takes:
            self._serve_takes()
        return queued

    @register
    def push_many(self, segments: list[Nest], push_id: str, wait_s: float = 0.0) -> Deferred | int:
        """Queue some; answered with how many of the first are. `push_id` is as a segment's, one for all of them.

        Without `wait_s` the rest is dropped, and counted. With it nothing is: the answer comes as soon as one at least
        is queued, or is 0 when there was no room in that time.
        """
        read = self.fifo.kind.read
        items = [read(segment) for segment in segments]
        if wait_s <= 0:
            count = self.fifo.push_many(items, push_id=push_id)
            if self._takes:
                self._serve_takes()
            return count
        queued = Deferred()
        timer = threading.Timer(self._time_left(wait_s), self.fifo.withdraw, (push_id,))
        timer.daemon = True

        def answer(count: int, error: errors.LudusError | None) -> None:
            timer.cancel()
            if error is None:
                queued.set_result(count)
            else:
                queued.set_error(error)

        self.fifo.offer_many(items, push_id=push_id, on_counted=answer)
        if not queued.is_done:
            timer.start()
        if self._takes:
            self._serve_takes()
        return queued

    @register
    def take(
        self, num_segments: int | None = None, min_rows: int | None = None, timeout_s: float = 30.0
    ) -> Deferred | list[dict[str, Any]]:
        """As `FifoBuffer.take`, for a consumer elsewhere. What it took is lost if it dies before it has the answer."""
        return self._take(num_segments, min_rows, None, timeout_s, self._pack)

    @register
    def take_some(self, most: int, timeout_s: float = 30.0) -> Deferred | list[Nest]:
        """From one to `most`, as soon as there is one; none when none came in time. Only the segments, without ids."""
        return self._take(most, None, 1, timeout_s, self._pack_bare)

    @register
    def give_back(self, segments: list[Nest]) -> None:
        """Queue what `take_some` has just brought, and nobody had, as the first again."""
        read = self.fifo.kind.read
        self.fifo.give_back([Item(segment=read(segment), segment_id="") for segment in segments])
        if self._takes:
            self._serve_takes()

    def _take(
        self,
        num_segments: int | None,
        min_rows: int | None,
        at_least: int | None,
        timeout_s: float,
        pack: Callable[[list[Item]], list[Any]],
    ) -> Deferred | list[Any]:
        with self._lock:
            items = [] if self._takes else self.fifo.take(num_segments, min_rows=min_rows, at_least=at_least)
            if items or timeout_s <= 0:
                return pack(items)
            waiting = _Take(num_segments, min_rows, at_least, pack)
            waiting.timer = threading.Timer(self._time_left(timeout_s), self._expire, (waiting,))
            waiting.timer.daemon = True
            waiting.timer.start()
            self._takes.append(waiting)
        return waiting.answer

    @staticmethod
    def _time_left(timeout_s: float) -> float:
        """Past the call's deadline nobody waits any more, and what it took would be lost; half of it is for the way."""
        until = deadline.current.get()
        return timeout_s if until is None else min(timeout_s, (until - time.monotonic()) / 2)

    @register
    def statistics(self) -> dict[str, Any]:
        """`FifoStats` by name."""
        return asdict(self.fifo.statistics())

    def stats(self) -> dict[str, Any]:
        """What `ludus ctl stats` shows."""
        return asdict(self.fifo.statistics())

    def close(self) -> None:
        """Tell producers that wait that they must turn elsewhere, and consumers that there is nothing."""
        self.fifo.close()
        with self._lock:
            takes, self._takes = self._takes, []
        for waiting in takes:
            waiting.end([])

    def _serve_takes(self) -> None:
        """Give the consumers that wait, in the order they came, what they wait for."""
        with self._lock:
            while self._takes:
                waiting = self._takes[0]
                try:
                    items = self.fifo.take(waiting.num_segments, min_rows=waiting.min_rows, at_least=waiting.at_least)
                except errors.ConfigError as error:
                    del self._takes[0]
                    waiting.fail(error)
                    continue
                if not items:
                    return
                del self._takes[0]
                waiting.end(items)

    def _expire(self, waiting: _Take) -> None:
        with self._lock:
            if waiting not in self._takes:
                return
            self._takes.remove(waiting)
        waiting.end([])
        self._serve_takes()  # who comes after it may want less

    def _pack(self, items: list[Item]) -> list[dict[str, Any]]:
        send = self.fifo.kind.send
        return [{"segment": send(item.segment), "segment_id": item.segment_id} for item in items]

    def _pack_bare(self, items: list[Item]) -> list[Nest]:
        send = self.fifo.kind.send
        return [send(item.segment) for item in items]
