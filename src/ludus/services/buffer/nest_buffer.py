"""A buffer of segments or any nests: storage, and one table that says which are sampled. It knows nothing of processes.

    buffer = NestBuffer(16)                                                     # a queue: the oldest first, each once
    buffer.offer(segment, segment_id="simulator/0-5f2a/17", on_queued=answer)   # answers now, or when there is room
    items = buffer.take(8)                                                      # eight, or none if there are fewer

When it is full, what is offered waits in line and is queued as others are taken: the answer is the producer's credit
for the next segment, so producers wait instead of piling up.

With `of="nest"` it holds any nests, called segments all the same, and several can be pushed at once. `BufferSettings`
make it a replay table:

    buffer = NestBuffer(BufferSettings(capacity=10_000, sampler="prioritised", min_size=100), of="nest")
    num_queued = buffer.push_many(nests, push_id="actor/0-5f2a/17", priorities=priorities)
    sampled = buffer.sample(32, timeout_s=1.0)
    buffer.update_priorities(sampled.keys, abs(errors))

With a `folder`, what was pushed survives kill -9 of its process: see `ludus.data.record_log`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus import clock as clocks
from ludus import errors
from ludus.data.nest import Nest
from ludus.services.buffer import buffer_settings
from ludus.services.buffer.buffer_settings import BufferSettings
from ludus.services.buffer.buffer_stats import BufferStats
from ludus.services.buffer.item_table import Item, ItemTable
from ludus.services.buffer.kinds import kind_of
from ludus.services.buffer.table import as_keys

__all__ = ["Item", "NestBuffer", "OnCounted", "OnQueued", "Sampled"]

OnQueued = Callable[[errors.LudusError | None], None]
"""Called with `None` once the segment is queued, or the error because of which it never will be."""

OnCounted = Callable[[int, errors.LudusError | None], None]
"""Called with how many of the first segments are queued, or the error because of which none ever will be."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Sampled(NamedTuple):
    """What `sample` gives: an item may be there more than once."""

    items: list[Any]
    keys: Ints
    probabilities: Floats  # of each draw; 1 for samplers that have an order


@dataclass(kw_only=True)
class _Offer:
    """What waits for room, and everybody who wants to know. `has_id`: each has an id of its own, to be seen once."""

    items: list[Item]
    priorities: Floats | None
    since: float
    has_id: bool
    callbacks: list[OnCounted] = field(default_factory=list)


class NestBuffer:
    """Safe to use from several threads. `settings`: a number is the capacity of a queue. `folder`: where it is kept.

    Segments are kept as they were given, not copied: their arrays must not change until they are taken and done with.
    What is sampled more than once is the same object each time: do not write to it.
    """

    def __init__(
        self,
        settings: BufferSettings | int,
        *,
        of: str = "segment",
        clock: clocks.Clock = clocks.SYSTEM,
        seed: int = 0,
        folder: Path | None = None,
    ) -> None:
        self.settings = settings = buffer_settings.settings_of(settings)
        self.kind = kind_of(of)
        self._capacity = settings.capacity
        self._clock = clock
        self._changed = threading.Condition()
        self._items = ItemTable(settings, self.kind, seed=seed, folder=folder)
        self._waiting: dict[str, _Offer] = {}  # by id, in the order they came
        self._is_closed = False
        self._has_folder = folder is not None
        self._num_duplicates = self._num_dropped = 0
        self._full_s = 0.0

    def __len__(self) -> int:
        return len(self._items)

    # -- producers ----------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        return self._capacity

    def push(self, segment: Any, *, segment_id: str, priority: float | None = None) -> None:
        """Queue a segment now; one that was queued before is left out. Raises `Overloaded` when there is no room."""
        with self._changed:
            self._expect_open()
            if self._is_duplicate(segment_id):
                return
            item = Item(segment=segment, segment_id=segment_id)
            if not self._insert([item], self._items.check_priorities(priority, 1), is_answered=False):
                raise errors.Overloaded(
                    f"the buffer holds {len(self)} segments, as many as it may; {segment_id} was not queued"
                )

    def offer(self, segment: Any, *, segment_id: str, on_queued: OnQueued, priority: float | None = None) -> None:
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
                items, priorities = (
                    [Item(segment=segment, segment_id=segment_id)],
                    self._items.check_priorities(priority, 1),
                )
                if not self._insert(items, priorities, is_answered=False):
                    self._wait_in_line(segment_id, items, priorities, counted, has_id=True)
                    return
        on_queued(None)

    def push_many(self, segments: Sequence[Any], *, push_id: str, priorities: Any = None) -> int:
        """Queue what there is room for, from the first on; returns how many. The rest is dropped, and counted.

        The pushes of one producer come one after another: when its last comes again, the answer is as it was.
        """
        with self._changed:
            self._expect_open()
            known = self._count_again(push_id)
            if known is not None:
                return known
            items = [Item(segment=segment, segment_id=push_id) for segment in segments]
            count = self._insert(items, self._items.check_priorities(priorities, len(items)), push_id=push_id)
            self._num_dropped += len(items) - count
            return count

    def offer_many(
        self, segments: Sequence[Any], *, push_id: str, on_counted: OnCounted, priorities: Any = None
    ) -> None:
        """As soon as there is room for one, queue as many of the first as fit, and say how many. Nothing is dropped.

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
                checked = self._items.check_priorities(priorities, len(items))
                count = self._insert(items, checked, push_id=push_id, is_answered=False)
                if items and not count:
                    self._wait_in_line(push_id, items, checked, on_counted, has_id=False)
                    return
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

    def _wait_in_line(
        self, key: str, items: list[Item], priorities: Floats | None, callback: OnCounted, *, has_id: bool
    ) -> None:
        self._waiting[key] = _Offer(
            items=items, priorities=priorities, since=self._clock.now(), has_id=has_id, callbacks=[callback]
        )

    def _count_again(self, push_id: str) -> int | None:
        known = self._items.counted.again(push_id)
        self._num_duplicates += known is not None
        return known

    @property
    def _is_kept_elsewhere(self) -> bool:
        """Closed, with a log in which nothing can be noted any more."""
        return self._is_closed and self._has_folder

    def _expect_open(self) -> None:
        if self._is_closed:
            raise errors.Unreachable("the buffer was closed; the segment was not queued")

    def _is_duplicate(self, segment_id: str) -> bool:
        seen = self._items.seen.has(segment_id)
        self._num_duplicates += seen
        return seen

    def _insert(
        self,
        items: Sequence[Item],
        priorities: Floats | None,
        *,
        push_id: str = "",
        is_first: bool = False,
        is_answered: bool = True,
    ) -> int:
        """Queue as many of the first as may be now; how many. None while others wait in line, unless it `is_first`.

        Without a `push_id` each item has an id of its own. `is_answered`: also if none is queued, that is the answer.
        """
        num = 0 if self._waiting and not is_first else self._items.num_insertable(len(items))
        if num or is_answered or not items:
            self._items.insert(items[:num], None if priorities is None else priorities[:num], push_id)
            self._changed.notify_all()
        return num

    # -- consumers ----------------------------------------------------------------------------------------------

    def take(
        self,
        num_segments: int | None = None,
        *,
        min_rows: int | None = None,
        at_least: int | None = None,
        timeout_s: float = 0.0,
    ) -> list[Item]:
        """Of a queue the oldest `num_segments`, or as many of the oldest as have `min_rows` rows; none if it has fewer.

        Otherwise what the sampler chooses; each counts as sampled once. With `at_least`, from so many on up to
        `num_segments` will do, and `num_segments` may be past the capacity. Waits up to `timeout_s` for enough; by
        default not at all. Raises `ConfigError` for more than will ever be there: beyond the capacity, or more rows
        than a full buffer has. A closed buffer that has a folder gives nothing: the next process has it all.
        """
        if (num_segments is None) == (min_rows is None):
            raise errors.ConfigError("take either num_segments or min_rows")
        wanted = at_least if at_least is not None else num_segments
        if wanted is not None and not 1 <= wanted <= self._capacity:
            raise errors.ConfigError(f"cannot take {wanted} segments at once from a buffer of {self._capacity}")
        with self._changed:
            if timeout_s > 0:
                self._changed.wait_for(
                    lambda: self._is_closed or self._items.count(num_segments, min_rows, at_least), timeout_s
                )
            if self._is_kept_elsewhere:
                return []
            taken = self._items.draw(self._items.count(num_segments, min_rows, at_least))[0]
            queued = self._admit() if taken else []
        for callback, count, error in queued:
            callback(count, error)
        return taken

    def sample(self, num: int, *, timeout_s: float = 0.0) -> Sampled | None:
        """`num` draws by the sampler; none when they cannot be had within `timeout_s`: `statistics` says why.

        Raises `ConfigError` for more than the rate limiter will ever allow at once.
        """
        if num < 1:
            raise errors.ConfigError(f"cannot sample {num} items: it is 1 or more")
        with self._changed:
            if timeout_s > 0:
                self._changed.wait_for(lambda: self._is_closed or self._items.can_sample(num), timeout_s)
            if self._is_kept_elsewhere or not self._items.can_sample(num):
                return None
            taken, keys, probabilities = self._items.draw(num)
            queued = self._admit()
        for callback, count, error in queued:
            callback(count, error)
        return Sampled([item.segment for item in taken], keys, probabilities)

    def update_priorities(self, keys: Any, priorities: Any) -> int:
        """Keys that are gone are ignored; how many were there."""
        keys = as_keys(keys)
        if priorities is None:
            raise errors.DataError(f"{len(keys)} keys without priorities; nothing was changed. Give one each")
        with self._changed:
            priorities = self._items.check_priorities(priorities, len(keys))
            assert priorities is not None
            num = self._items.update_priorities(keys, priorities)
            self._changed.notify_all()
            return num

    def give_back(self, items: Sequence[Item]) -> None:
        """Put back what was just taken, as the first, as if it had not been. For once it may be past the capacity."""
        with self._changed:
            if self._is_kept_elsewhere:
                raise errors.Unreachable("the buffer was closed; what should be given back is lost")
            self._items.give_back(items)
            self._changed.notify_all()

    def _admit(self) -> list[tuple[OnCounted, int, errors.LudusError | None]]:
        """Queue what waits, as far as there is room; whom to answer, and how many of theirs were queued."""
        callbacks: list[tuple[OnCounted, int, errors.LudusError | None]] = []
        while self._waiting:
            key, offer = next(iter(self._waiting.items()))
            error: errors.LudusError | None = None
            try:
                push_id = "" if offer.has_id else key
                count = self._insert(offer.items, offer.priorities, push_id=push_id, is_first=True, is_answered=False)
            except errors.DataError as refused:  # the producer's, not that of the consumer who made room
                count, error = 0, refused
            if not count and error is None:
                break
            del self._waiting[key]
            self._full_s += self._clock.now() - offer.since
            callbacks += [(each, count, error) for each in offer.callbacks]
        return callbacks

    # -- all else -----------------------------------------------------------------------------------------------

    def statistics(self) -> BufferStats:
        with self._changed:
            now = self._clock.now()
            items = self._items
            return BufferStats(
                num_pushed=items.num_pushed,
                num_taken=items.num_taken,
                num_dropped=self._num_dropped,
                num_duplicates=self._num_duplicates,
                num_waiting_producers=len(self._waiting),
                num_rows_taken=items.num_rows_taken,
                size=len(self),
                capacity=self._capacity,
                full_s=self._full_s + sum(now - offer.since for offer in self._waiting.values()),
                num_evicted=items.num_evicted,
                inserting=items.why_not_insert(),
                sampling=items.why_not_sample(),
            )

    def why_not_sample(self, num: int) -> str:
        """Why a `sample` of so many must wait; empty: it need not."""
        with self._changed:
            if self._items.can_sample(num):
                return ""
            stats = self.statistics()
            return (
                stats.sampling or f"sampling waits for inserts: {num} are asked for, and {stats.size} items are there"
            )

    def save(self) -> Nest:
        """What is queued, what was ever seen, and the counts. What waits is not: its producers will push it again.

        Nothing is copied but references: others wait for a moment only, however much is queued.
        """
        with self._changed:
            return {
                **self._items.save(),
                "num_dropped": self._num_dropped,
                "num_duplicates": self._num_duplicates,
                "full_s": self._full_s,
            }

    def restore(self, saved: Nest) -> None:
        """Go on where `save` was called. Raises `DataError` unless nothing has been pushed here yet."""
        with self._changed:
            if self._items.num_pushed or self._waiting:
                raise errors.DataError("a buffer is restored before anything is pushed to it")
            self._items.restore(saved)
            self._num_dropped, self._num_duplicates = saved["num_dropped"], saved["num_duplicates"]
            self._full_s = saved["full_s"]
            self._changed.notify_all()

    def close(self) -> None:
        """Accept no more: producers that wait for room get an error, consumers that wait for segments get none."""
        with self._changed:
            self._is_closed = True
            waiting, self._waiting = self._waiting, {}
            self._items.close()
            self._changed.notify_all()
        for offer in waiting.values():
            for callback in offer.callbacks:
                callback(0, errors.Unreachable("the buffer was closed; the segment was not queued"))
