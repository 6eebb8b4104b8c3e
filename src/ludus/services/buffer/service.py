"""The buffer as a service: a push is answered when its segment is queued, a take when there is enough.

With `of="nest"` it is of any nests: `push_many` and `take_some` are for those.

A trainer can own one in its own process:

    self.buffer = BufferService(capacity=16)
    server.register_service(self.buffer)        # its worker's server answers push
    items = self.buffer.buffer.take(8)            # in the same thread: never waits, [] when there are fewer

What arrives is kept as it arrived. Arrays that came through shared memory stay where they are, valid and unchanged, for
as long as they are held; the trainer's concatenation is the first copy. Until then they take room in their producer's
64 MiB of shared memory; a producer that has none left sends through its socket, which is slower and just as right.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ludus import errors
from ludus.data.limits import DEFAULT_LIMITS
from ludus.data.nest import Nest
from ludus.rpc.deferred import Deferred
from ludus.services.buffer.buffer_settings import BufferSettings
from ludus.services.buffer.nest_buffer import Item, NestBuffer
from ludus.services.buffer.waiting_calls import WaitingCalls, time_left
from ludus.workers.register import register

__all__ = ["BufferService"]

_AROUND = 4  # values: an item's own container and its id
_MAX_BYTES = DEFAULT_LIMITS.max_bytes * 9 // 10  # the rest is for names and shapes


class BufferService:
    """Commands: `push`, `push_many`, `take`, `take_some`, `give_back`, `sample`, `update_priorities`, `statistics`.

    In its own process use `buffer` itself. `settings`: a number is the capacity of a queue.
    """

    def __init__(self, settings: BufferSettings | int, *, of: str = "segment", folder: Path | None = None) -> None:
        self.buffer = NestBuffer(settings, of=of, folder=folder)
        self._lock = threading.RLock()
        self._takes = WaitingCalls(self._lock)

    @property
    def when_full(self) -> str:
        """What a push does that does not say: see `BufferSettings`."""
        return self.buffer.settings.full

    @register
    def push(self, segment: Nest, segment_id: str, priority: float | None = None) -> Deferred | None:
        """Queue a segment; answered once it is. The same id again is answered too, and queued once only."""
        queued = Deferred()

        def answer(error: errors.LudusError | None) -> None:
            if error is None:
                queued.set_result(None)
            else:
                queued.set_error(error)

        item = self.buffer.kind.read(segment)
        self.buffer.offer(item, segment_id=segment_id, on_queued=answer, priority=priority)
        if self._takes:
            self._takes.serve()
        return queued

    @register
    def push_many(
        self, segments: list[Nest], push_id: str, wait_s: float = 0.0, priorities: Any = None
    ) -> Deferred | int:
        """Queue some; answered with how many of the first are. `push_id` is as a segment's, one for all of them.

        Without `wait_s` the rest is dropped, and counted. With it nothing is: the answer comes as soon as one at least
        is queued, or is 0 when there was no room in that time.
        """
        read = self.buffer.kind.read
        items = [read(segment) for segment in segments]
        if wait_s <= 0:
            count = self.buffer.push_many(items, push_id=push_id, priorities=priorities)
            if self._takes:
                self._takes.serve()
            return count
        queued = Deferred()
        timer = threading.Timer(time_left(wait_s), self.buffer.withdraw, (push_id,))
        timer.daemon = True

        def answer(count: int, error: errors.LudusError | None) -> None:
            timer.cancel()
            if error is None:
                queued.set_result(count)
            else:
                queued.set_error(error)

        self.buffer.offer_many(items, push_id=push_id, on_counted=answer, priorities=priorities)
        if not queued.is_done:
            timer.start()
        if self._takes:
            self._takes.serve()
        return queued

    @register
    def take(
        self, num_segments: int | None = None, min_rows: int | None = None, timeout_s: float = 30.0
    ) -> Deferred | list[dict[str, Any]]:
        """As `NestBuffer.take`, for a consumer elsewhere. What it took is lost if it dies before it has the answer."""
        return self._takes.answer(lambda: self._pack(self._take_all(num_segments, min_rows)), list, timeout_s)

    @register
    def take_some(self, most: int, timeout_s: float = 30.0) -> Deferred | list[Nest]:
        """From one to `most`, as soon as there is one; none when none came in time. Only the segments, without ids.

        No more than fit into one answer.
        """
        return self._takes.answer(lambda: self._pack_bare(self._take_some(most)), list, timeout_s)

    def _take_all(self, num_segments: int | None, min_rows: int | None) -> list[Item]:
        items = self.buffer.take(num_segments, min_rows=min_rows)
        num = self._num_that_fit(items)
        if num < len(items):
            self.buffer.give_back(items)
            raise errors.ConfigError(
                f"{len(items)} segments are too large for one answer, and only {num} of them fit: they were put back. "
                "Take fewer at once."
            )
        return items

    def _take_some(self, most: int) -> list[Item]:
        items = self.buffer.take(most, at_least=1)
        num = self._num_that_fit(items)
        if num < len(items):
            self.buffer.give_back(items[num:])
        return items[:num]

    def _num_that_fit(self, items: list[Item]) -> int:
        """How many of the first can be sent by one answer, with room for what is around them; one in any case."""
        values = num_bytes = 0
        for number, item in enumerate(items):
            more = _weigh(self.buffer.kind.send(item.segment))
            values, num_bytes = values + more[0] + _AROUND, num_bytes + more[1]
            if number and (values > DEFAULT_LIMITS.max_leaves - _AROUND or num_bytes > _MAX_BYTES):
                return number
        return len(items)

    @register
    def sample(self, num: int, timeout_s: float = 30.0) -> Deferred | Nest:
        """`num` draws: `{"items", "keys", "probabilities"}`; `{"waits": why}` when they could not be had in time."""
        return self._takes.answer(
            lambda: self._sample(num), lambda: {"waits": self.buffer.why_not_sample(num)}, timeout_s
        )

    def _sample(self, num: int) -> Nest:
        sampled = self.buffer.sample(num)
        if sampled is None:
            return None
        send = self.buffer.kind.send
        items = [send(item) for item in sampled.items]
        return {"items": items, "keys": sampled.keys, "probabilities": sampled.probabilities}

    @register
    def update_priorities(self, keys: Any, priorities: Any) -> int:
        """Keys that are gone are ignored; how many were there."""
        num = self.buffer.update_priorities(keys, priorities)
        if self._takes:
            self._takes.serve()
        return num

    @register
    def give_back(self, segments: list[Nest]) -> None:
        """Queue what `take_some` has just brought, and nobody had, as the first again."""
        read = self.buffer.kind.read
        self.buffer.give_back([Item(segment=read(segment), segment_id="") for segment in segments])
        if self._takes:
            self._takes.serve()

    @register
    def statistics(self) -> dict[str, Any]:
        """`BufferStats` by name."""
        return asdict(self.buffer.statistics())

    def stats(self) -> dict[str, Any]:
        """What `ludus ctl stats` shows."""
        return asdict(self.buffer.statistics())

    def close(self) -> None:
        """Tell producers that wait that they must turn elsewhere, and consumers that there is nothing."""
        self.buffer.close()
        self._takes.close()

    def _pack(self, items: list[Item]) -> list[dict[str, Any]]:
        send = self.buffer.kind.send
        return [{"segment": send(item.segment), "segment_id": item.segment_id} for item in items]

    def _pack_bare(self, items: list[Item]) -> list[Nest]:
        send = self.buffer.kind.send
        return [send(item.segment) for item in items]


def _weigh(nest: Nest) -> tuple[int, int]:
    """About how many values, containers included, and bytes."""
    if isinstance(nest, np.ndarray):
        return 1, nest.nbytes
    if isinstance(nest, str | bytes):
        return 1, len(nest)
    children = nest.values() if isinstance(nest, Mapping) else nest if isinstance(nest, list | tuple) else ()
    values, num_bytes = 1, 8
    for child in children:
        more = _weigh(child)
        values, num_bytes = values + more[0], num_bytes + more[1]
    return values, num_bytes
