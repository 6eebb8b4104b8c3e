"""A bounded queue of segments: first in, first out, each taken once. It knows nothing of processes.

    buffer = FifoBuffer(capacity=16)
    buffer.offer(segment, segment_id="simulator/0-5f2a/17", on_queued=answer)   # answers now, or when there is room
    items = buffer.take(8)                                                      # eight, or none if there are fewer

When it is full, what is offered waits in line and is queued as others are taken: the answer is the producer's credit
for the next segment, so producers wait instead of piling up.

With `of="nest"` it holds any nests, called segments all the same, and several can be pushed at once:

    num_queued = buffer.push_many(nests, push_id="actor/0-5f2a/17")             # the rest is dropped, and counted
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ludus import clock as clocks
from ludus import errors
from ludus.data.nest import Nest
from ludus.services.buffer.kinds import kind_of
from ludus.services.buffer.seen_segments import SeenSegments, parse_segment_id
from ludus.telemetry.counts import Counts

__all__ = ["FifoBuffer", "FifoStats", "Item", "OnCounted", "OnQueued", "counts"]

OnQueued = Callable[[errors.LudusError | None], None]
"""Called with `None` once the segment is queued, or the error because of which it never will be."""

OnCounted = Callable[[int, errors.LudusError | None], None]
"""Called with how many of the first segments are queued, or the error because of which none ever will be."""

_MAX_PRODUCERS = 65_536


@dataclass(frozen=True, kw_only=True)
class Item:
    """A segment, or whatever else the buffer is of, and the id that it was pushed under."""

    segment: Any
    segment_id: str


@dataclass(frozen=True, kw_only=True)
class FifoStats:
    """`num_pushed` = `num_taken` + `size` always: nothing that was queued is lost or counted twice.

    `num_dropped` were never queued: there was no room for them, and their producer did not want to wait.
    """

    num_pushed: int
    num_taken: int
    num_dropped: int
    num_duplicates: int  # pushed once more and not queued again
    num_waiting_producers: int  # segments that wait for room
    num_rows_taken: int
    size: int
    capacity: int
    full_s: float  # that segments have waited for room, all together


def counts(stats: Mapping[str, Any]) -> Counts:
    """`FifoStats` by name, as what they are."""
    return Counts(
        totals={name: stats[f"num_{name}"] for name in ("pushed", "taken", "dropped", "duplicates")},
        levels={"size": stats["size"], "waiting_producers": stats["num_waiting_producers"]},
        rates={"pushed_per_second": "pushed", "taken_per_second": "taken"},
    )


@dataclass(kw_only=True)
class _Offer:
    """What waits for room, and everybody who wants to know. `has_id`: each has an id of its own, to be seen once."""

    items: list[Item]
    since: float
    has_id: bool
    callbacks: list[OnCounted] = field(default_factory=list)


class FifoBuffer:
    """Safe to use from several threads. `capacity` counts segments.

    Segments are kept as they were given, not copied: their arrays must not change until they are taken and done with.
    """

    def __init__(self, *, capacity: int, of: str = "segment", clock: clocks.Clock = clocks.SYSTEM) -> None:
        if capacity < 1:
            raise errors.ConfigError(f"capacity={capacity}: a buffer holds at least 1 segment")
        self.kind = kind_of(of)
        self._capacity = capacity
        self._clock = clock
        self._changed = threading.Condition()
        self._queue: deque[Item] = deque()
        self._waiting: dict[str, _Offer] = {}  # by id, in the order they came
        self._seen = SeenSegments()  # what was queued, ever
        self._counted: dict[str, tuple[int, int]] = {}  # of each who pushes many: its last push, and what was queued
        self._is_closed = False
        self._num_pushed = self._num_taken = self._num_duplicates = self._num_rows_taken = self._num_dropped = 0
        self._full_s = 0.0

    def __len__(self) -> int:
        return len(self._queue)

    # -- producers ----------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        return self._capacity

    def push(self, segment: Any, *, segment_id: str) -> None:
        """Queue a segment now; one that was queued before is left out. Raises `Overloaded` when there is no room."""
        with self._changed:
            self._expect_open()
            if self._is_duplicate(segment_id):
                return
            if not self._has_room:
                raise errors.Overloaded(
                    f"the buffer holds {len(self._queue)} segments, as many as it may; {segment_id} was not queued"
                )
            self._seen.add(segment_id)
            self._enqueue([Item(segment=segment, segment_id=segment_id)])

    def offer(self, segment: Any, *, segment_id: str, on_queued: OnQueued) -> None:
        """Queue a segment as soon as there is room, after those that wait already, and call `on_queued`.

        One that was queued before is not queued again; `on_queued` is called all the same, by the thread that
        makes room, or at once; it should be short and must not raise.
        """

        def counted(count: int, error: errors.LudusError | None) -> None:
            on_queued(error)

        with self._changed:
            self._expect_open()
            waiting = self._waiting.get(segment_id)
            if waiting is not None:
                self._num_duplicates += 1
                waiting.callbacks.append(counted)
                return
            if not self._is_duplicate(segment_id):
                item = Item(segment=segment, segment_id=segment_id)
                if not self._has_room:
                    offer = _Offer(items=[item], since=self._clock.now(), has_id=True, callbacks=[counted])
                    self._waiting[segment_id] = offer
                    return
                self._seen.add(segment_id)
                self._enqueue([item])
        on_queued(None)

    def push_many(self, segments: Sequence[Any], *, push_id: str) -> int:
        """Queue what there is room for, from the first on; returns how many. The rest is dropped, and counted.

        The pushes of one producer come one after another: when its last comes again, the answer is as it was.
        """
        with self._changed:
            self._expect_open()
            known = self._count_again(push_id)
            if known is not None:
                return known
            items = [Item(segment=segment, segment_id=push_id) for segment in segments]
            queued = items[: self._room]
            self._enqueue(queued)
            self._num_dropped += len(items) - len(queued)
            self._note_count(push_id, len(queued))
            return len(queued)

    def offer_many(self, segments: Sequence[Any], *, push_id: str, on_counted: OnCounted) -> None:
        """As soon as there is room for one, queue as many of the first as fit, and tell how many. Nothing is dropped.

        `on_counted` is called as `on_queued` of `offer` is. A push that comes again gets the same answer.
        """
        with self._changed:
            self._expect_open()
            waiting = self._waiting.get(push_id)
            if waiting is not None:
                self._num_duplicates += len(segments)
                waiting.callbacks.append(on_counted)
                return
            count = self._count_again(push_id)
            if count is None:
                items = [Item(segment=segment, segment_id=push_id) for segment in segments]
                if items and not self._has_room:
                    offer = _Offer(items=items, since=self._clock.now(), has_id=False, callbacks=[on_counted])
                    self._waiting[push_id] = offer
                    return
                count = min(self._room, len(items))
                self._enqueue(items[:count])
                self._note_count(push_id, count)
        on_counted(count, None)

    def withdraw(self, push_id: str) -> bool:
        """Have what `offer_many` was given, and still waits, wait no more: 0 of it are queued. False if none waits."""
        with self._changed:
            offer = self._waiting.pop(push_id, None)
            if offer is None:
                return False
            self._full_s += self._clock.now() - offer.since
        for callback in offer.callbacks:
            callback(0, None)
        return True

    @property
    def _room(self) -> int:
        """How many could be queued now; none while others wait in line."""
        return 0 if self._waiting else max(0, self._capacity - len(self._queue))

    @property
    def _has_room(self) -> bool:
        return self._room > 0

    def _count_again(self, push_id: str) -> int | None:
        """The earlier answer to this push; none if it is new. One older than the last is nobody's any more."""
        producer, number = parse_segment_id(push_id)
        last, count = self._counted.get(producer, (-1, 0))
        if number > last:
            return None
        self._num_duplicates += 1
        return count if number == last else 0

    def _note_count(self, push_id: str, count: int) -> None:
        producer, number = parse_segment_id(push_id)
        self._counted.pop(producer, None)  # and put back last: the first is the longest idle
        self._counted[producer] = number, count
        if len(self._counted) > _MAX_PRODUCERS:
            del self._counted[next(iter(self._counted))]

    def _expect_open(self) -> None:
        if self._is_closed:
            raise errors.Unreachable("the buffer was closed; the segment was not queued")

    def _is_duplicate(self, segment_id: str) -> bool:
        seen = self._seen.has(segment_id)
        self._num_duplicates += seen
        return seen

    def _enqueue(self, items: Sequence[Item]) -> None:
        self._queue.extend(items)
        self._num_pushed += len(items)
        self._changed.notify_all()

    # -- consumers ----------------------------------------------------------------------------------------------

    def take(
        self,
        num_segments: int | None = None,
        *,
        min_rows: int | None = None,
        at_least: int | None = None,
        timeout_s: float = 0.0,
    ) -> list[Item]:
        """The oldest `num_segments`, or as many of the oldest as have `min_rows` rows together; none if it has fewer.

        With `at_least`, from so many on up to `num_segments` will do, and `num_segments` may be past the capacity.
        Waits up to `timeout_s` for enough; by default not at all. Raises `ConfigError` for more than will ever be
        there: beyond the capacity, or more rows than a full buffer has.
        """
        if (num_segments is None) == (min_rows is None):
            raise errors.ConfigError("take either num_segments or min_rows")
        wanted = at_least if at_least is not None else num_segments
        if wanted is not None and not 1 <= wanted <= self._capacity:
            raise errors.ConfigError(f"cannot take {wanted} segments at once from a buffer of {self._capacity}")
        num_rows = self.kind.num_rows
        with self._changed:
            if timeout_s > 0:
                self._changed.wait_for(
                    lambda: self._is_closed or self._count(num_segments, min_rows, at_least), timeout_s
                )
            taken = [self._queue.popleft() for _ in range(self._count(num_segments, min_rows, at_least))]
            self._num_taken += len(taken)
            self._num_rows_taken += sum(num_rows(item.segment) for item in taken)
            queued = self._admit() if taken else []
        for callback, count in queued:
            callback(count, None)
        return taken

    def give_back(self, items: Sequence[Item]) -> None:
        """Put back what was just taken, as the first, as if it had not been. For once it may be past the capacity."""
        num_rows = sum(self.kind.num_rows(item.segment) for item in items)
        with self._changed:
            self._queue.extendleft(reversed(items))
            self._num_taken -= len(items)
            self._num_rows_taken -= num_rows
            self._changed.notify_all()

    def _count(self, num_segments: int | None, min_rows: int | None, at_least: int | None) -> int:
        """How many of the oldest are to be taken; 0 when there are not enough."""
        if num_segments is not None:
            enough = num_segments if at_least is None else at_least
            return min(num_segments, len(self._queue)) if len(self._queue) >= enough else 0
        assert min_rows is not None
        rows = 0
        for count, item in enumerate(self._queue, 1):
            rows += self.kind.num_rows(item.segment)
            if rows >= min_rows:
                return count
        if len(self._queue) >= self._capacity:
            raise errors.ConfigError(
                f"the buffer is full with {self._capacity} segments of {rows} rows, and {min_rows} rows are asked for: "
                "they would never come. Give it more capacity."
            )
        return 0

    def _admit(self) -> list[tuple[OnCounted, int]]:
        """Queue what waits, as far as there is room; whom to tell, and how many of theirs were queued."""
        callbacks: list[tuple[OnCounted, int]] = []
        while self._waiting and len(self._queue) < self._capacity:
            key = next(iter(self._waiting))
            offer = self._waiting.pop(key)
            self._full_s += self._clock.now() - offer.since
            queued = offer.items[: self._capacity - len(self._queue)]
            if offer.has_id:
                self._seen.add(key)
            else:
                self._note_count(key, len(queued))
            self._enqueue(queued)
            callbacks += [(each, len(queued)) for each in offer.callbacks]
        return callbacks

    # -- all else -----------------------------------------------------------------------------------------------

    def statistics(self) -> FifoStats:
        with self._changed:
            now = self._clock.now()
            return FifoStats(
                num_pushed=self._num_pushed,
                num_taken=self._num_taken,
                num_dropped=self._num_dropped,
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
                "queue": [[item.segment_id, self.kind.send(item.segment)] for item in self._queue],
                "seen": self._seen.save(),
                "counted": {producer: list(known) for producer, known in self._counted.items()},
                "num_pushed": self._num_pushed,
                "num_taken": self._num_taken,
                "num_dropped": self._num_dropped,
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
                Item(segment=self.kind.read(segment), segment_id=segment_id) for segment_id, segment in saved["queue"]
            )
            self._seen.restore(saved["seen"])
            self._counted = {producer: (number, count) for producer, (number, count) in saved["counted"].items()}
            self._num_dropped = saved["num_dropped"]
            self._num_pushed, self._num_taken = saved["num_pushed"], saved["num_taken"]
            self._num_duplicates, self._num_rows_taken = saved["num_duplicates"], saved["num_rows_taken"]
            self._full_s = saved["full_s"]
            self._changed.notify_all()

    def close(self) -> None:
        """Accept no more: producers that wait for room get an error, consumers that wait for segments get none."""
        with self._changed:
            self._is_closed = True
            waiting, self._waiting = self._waiting, {}
            self._changed.notify_all()
        for offer in waiting.values():
            for callback in offer.callbacks:
                callback(0, errors.Unreachable("the buffer was closed; the segment was not queued"))
