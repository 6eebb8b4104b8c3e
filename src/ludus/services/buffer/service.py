"""The buffer as a service: a push is answered when its segment is queued, a take when there is enough.

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
from dataclasses import asdict
from typing import Any

from ludus import errors
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.rpc import deadline
from ludus.rpc.deferred import Deferred
from ludus.services.buffer.fifo import FifoBuffer, Item
from ludus.workers.register import register

__all__ = ["BufferService"]


class _Take:
    """A consumer that waits for enough segments, until its time is up."""

    def __init__(self, num_segments: int | None, min_rows: int | None) -> None:
        self.num_segments = num_segments
        self.min_rows = min_rows
        self.answer = Deferred()
        self.timer: threading.Timer | None = None

    def end(self, items: list[Item]) -> None:
        self._stop()
        self.answer.set_result(_pack(items))

    def fail(self, error: errors.LudusError) -> None:
        self._stop()
        self.answer.set_error(error)

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class BufferService:
    """Commands: `push`, `take`, `statistics`. In its own process use `fifo` itself."""

    def __init__(self, capacity: int) -> None:
        self.fifo = FifoBuffer(capacity=capacity)
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

        self.fifo.offer(Segment.from_nest(segment), segment_id=segment_id, on_queued=answer)
        if self._takes:
            self._serve_takes()
        return queued

    @register
    def take(
        self, num_segments: int | None = None, min_rows: int | None = None, timeout_s: float = 30.0
    ) -> Deferred | list[dict[str, Any]]:
        """As `FifoBuffer.take`, for a consumer elsewhere. What it took is lost if it dies before it has the answer."""
        with self._lock:
            items = [] if self._takes else self.fifo.take(num_segments, min_rows=min_rows)
            if items or timeout_s <= 0:
                return _pack(items)
            # Past the call's deadline nobody waits any more, and what it took would be lost; half of it is for the way.
            until = deadline.current.get()
            left = timeout_s if until is None else min(timeout_s, (until - time.monotonic()) / 2)
            waiting = _Take(num_segments, min_rows)
            waiting.timer = threading.Timer(left, self._expire, (waiting,))
            waiting.timer.daemon = True
            waiting.timer.start()
            self._takes.append(waiting)
        return waiting.answer

    @register
    def statistics(self) -> dict[str, Any]:
        """`FifoStatistics` by name."""
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
                    items = self.fifo.take(waiting.num_segments, min_rows=waiting.min_rows)
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


def _pack(items: list[Item]) -> list[dict[str, Any]]:
    return [{"segment": item.segment.to_nest(), "segment_id": item.segment_id} for item in items]
