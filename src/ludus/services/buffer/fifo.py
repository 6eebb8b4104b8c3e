"""A bounded queue of segments: first in, first out, each taken once. It knows nothing of processes.

    buffer = FifoBuffer(capacity=16)
    buffer.offer(segment, segment_id="simulator/0-5f2a/17", on_queued=answer)   # answers now, or when there is room
    items = buffer.take(8)                                                      # eight, or none if there are fewer

When it is full, what is offered waits in line and is queued as others are taken: the answer is the producer's credit
for the next segment, so producers wait instead of piling up.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ludus import clock as clocks
from ludus import errors
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.services.buffer.seen import Seen

__all__ = ["FifoBuffer", "FifoStatistics", "Item", "OnQueued"]

OnQueued = Callable[[errors.LudusError | None], None]
"""Told `None` once the segment is queued, or the error because of which it never will be."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """A segment and the id that it was pushed under."""

    segment: Segment
    segment_id: str


@dataclass(frozen=True, kw_only=True)
class FifoStatistics:
    """`num_pushed` = `num_taken` + `size` always: nothing that was queued is lost or counted twice."""

    num_pushed: int
    num_taken: int
    num_duplicates: int  # pushed once more and not queued again
    num_waiting_producers: int  # segments that wait for room
    num_rows_taken: int
    size: int
    capacity: int
    full_s: float  # that segments have waited for room, all together


@dataclass(kw_only=True)
class _Offer:
    """A segment that waits for room, and everybody who wants to know."""

    item: Item
    since: float
    on_queued: list[OnQueued] = field(default_factory=list)


class FifoBuffer:
    """Safe to use from several threads. `capacity` counts segments.

    Segments are kept as they were given, not copied: their arrays must not change until they are taken and done with.
    """

    def __init__(self, *, capacity: int, clock: clocks.Clock = clocks.SYSTEM) -> None:
        if capacity < 1:
            raise errors.ConfigError(f"capacity={capacity}: a buffer holds at least 1 segment")
        self._capacity = capacity
        self._clock = clock
        self._changed = threading.Condition()
        self._queue: deque[Item] = deque()
        self._waiting: dict[str, _Offer] = {}  # by segment id, in the order they came
        self._seen = Seen()  # what was queued, ever
        self._is_closed = False
        self._num_pushed = self._num_taken = self._num_duplicates = self._num_rows_taken = 0
        self._full_s = 0.0

    def __len__(self) -> int:
        return len(self._queue)

    # -- producers ----------------------------------------------------------------------------------------------

    def push(self, segment: Segment, *, segment_id: str) -> None:
        """Queue a segment now; one that was queued before is left out. Raises `Overloaded` when there is no room."""
        with self._changed:
            self._expect_open()
            if self._is_duplicate(segment_id):
                return
            if not self._has_room:
                raise errors.Overloaded(
                    f"the buffer holds {len(self._queue)} segments, as many as it may; {segment_id} was not queued"
                )
            self._enqueue(Item(segment=segment, segment_id=segment_id))

    def offer(self, segment: Segment, *, segment_id: str, on_queued: OnQueued) -> None:
        """Queue a segment as soon as there is room, after those that wait already, and call `on_queued`.

        One that was queued before is not queued again; `on_queued` is called all the same. It is called by whoever
        makes room, or at once; it should be short and must not raise.
        """
        with self._changed:
            self._expect_open()
            waiting = self._waiting.get(segment_id)
            if waiting is not None:
                self._num_duplicates += 1
                waiting.on_queued.append(on_queued)
                return
            if not self._is_duplicate(segment_id):
                item = Item(segment=segment, segment_id=segment_id)
                if not self._has_room:
                    self._waiting[segment_id] = _Offer(item=item, since=self._clock.now(), on_queued=[on_queued])
                    return
                self._enqueue(item)
        on_queued(None)

    @property
    def _has_room(self) -> bool:
        return not self._waiting and len(self._queue) < self._capacity

    def _expect_open(self) -> None:
        if self._is_closed:
            raise errors.Unreachable("the buffer was closed; the segment was not queued")

    def _is_duplicate(self, segment_id: str) -> bool:
        seen = self._seen.has(segment_id)
        self._num_duplicates += seen
        return seen

    def _enqueue(self, item: Item) -> None:
        self._seen.add(item.segment_id)
        self._queue.append(item)
        self._num_pushed += 1
        self._changed.notify_all()

    # -- consumers ----------------------------------------------------------------------------------------------

    def take(
        self, num_segments: int | None = None, *, min_rows: int | None = None, timeout_s: float = 0.0
    ) -> list[Item]:
        """The oldest `num_segments`, or as many of the oldest as have `min_rows` rows together; none if it has fewer.

        Waits up to `timeout_s` for enough; by default not at all. Raises `ConfigError` for more than will ever be
        there: beyond the capacity, or more rows than a full buffer has.
        """
        if (num_segments is None) == (min_rows is None):
            raise errors.ConfigError("take either num_segments or min_rows")
        if num_segments is not None and not 1 <= num_segments <= self._capacity:
            raise errors.ConfigError(f"cannot take {num_segments} segments at once from a buffer of {self._capacity}")
        with self._changed:
            if timeout_s > 0:
                self._changed.wait_for(lambda: self._is_closed or self._count(num_segments, min_rows), timeout_s)
            taken = [self._queue.popleft() for _ in range(self._count(num_segments, min_rows))]
            self._num_taken += len(taken)
            self._num_rows_taken += sum(item.segment.num_rows for item in taken)
            queued = self._admit() if taken else []
        for on_queued in queued:
            on_queued(None)
        return taken

    def _count(self, num_segments: int | None, min_rows: int | None) -> int:
        """How many of the oldest are to be taken; 0 when there are not enough."""
        if num_segments is not None:
            return num_segments if len(self._queue) >= num_segments else 0
        assert min_rows is not None
        rows = 0
        for count, item in enumerate(self._queue, 1):
            rows += item.segment.num_rows
            if rows >= min_rows:
                return count
        if len(self._queue) == self._capacity:
            raise errors.ConfigError(
                f"the buffer is full with {self._capacity} segments of {rows} rows, and {min_rows} rows are asked for: "
                "they would never come. Give it more capacity."
            )
        return 0

    def _admit(self) -> list[OnQueued]:
        """Queue what waits, as far as there is room; whom to tell."""
        told: list[OnQueued] = []
        while self._waiting and len(self._queue) < self._capacity:
            offer = self._waiting.pop(next(iter(self._waiting)))
            self._full_s += self._clock.now() - offer.since
            self._enqueue(offer.item)
            told += offer.on_queued
        return told

    # -- all else -----------------------------------------------------------------------------------------------

    def statistics(self) -> FifoStatistics:
        with self._changed:
            now = self._clock.now()
            return FifoStatistics(
                num_pushed=self._num_pushed,
                num_taken=self._num_taken,
                num_duplicates=self._num_duplicates,
                num_waiting_producers=len(self._waiting),
                num_rows_taken=self._num_rows_taken,
                size=len(self._queue),
                capacity=self._capacity,
                full_s=self._full_s + sum(now - offer.since for offer in self._waiting.values()),
            )

    def save(self) -> Nest:
        """What is queued, what was ever seen, and the counts. What waits is not: its producers will push it again."""
        with self._changed:
            return {
                "queue": [[item.segment_id, item.segment.to_nest()] for item in self._queue],
                "seen": self._seen.save(),
                "num_pushed": self._num_pushed,
                "num_taken": self._num_taken,
                "num_duplicates": self._num_duplicates,
                "num_rows_taken": self._num_rows_taken,
                "full_s": self._full_s,
            }

    def restore(self, saved: Nest) -> None:
        """Go on where `save` was called. Raises `DataError` unless nothing has been pushed here yet."""
        with self._changed:
            if self._num_pushed or self._waiting:
                raise errors.DataError("a buffer is restored before anything is pushed to it")
            self._queue.extend(
                Item(segment=Segment.from_nest(segment), segment_id=segment_id)
                for segment_id, segment in saved["queue"]
            )
            self._seen.restore(saved["seen"])
            self._num_pushed, self._num_taken = saved["num_pushed"], saved["num_taken"]
            self._num_duplicates, self._num_rows_taken = saved["num_duplicates"], saved["num_rows_taken"]
            self._full_s = saved["full_s"]
            self._changed.notify_all()

    def close(self) -> None:
        """Take no more in: whoever waits for room is told so, whoever waits for segments gets none."""
        with self._changed:
            self._is_closed = True
            waiting, self._waiting = self._waiting, {}
            self._changed.notify_all()
        for offer in waiting.values():
            for on_queued in offer.on_queued:
                on_queued(errors.Unreachable("the buffer was closed; the segment was not queued"))
