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

With a `folder`, what was pushed survives kill -9 of its process: see `item_log.py`.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus import clock as clocks
from ludus import errors
from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.services.buffer import buffer_settings
from ludus.services.buffer.buffer_settings import BufferSettings
from ludus.services.buffer.buffer_stats import BufferStats
from ludus.services.buffer.item_log import ItemLog
from ludus.services.buffer.kinds import kind_of
from ludus.services.buffer.push_counts import PushCounts
from ludus.services.buffer.seen_segments import SeenSegments
from ludus.services.buffer.stored_items import StoredItems

__all__ = ["Item", "NestBuffer", "OnCounted", "OnQueued", "Sampled"]

OnQueued = Callable[[errors.LudusError | None], None]
"""Called with `None` once the segment is queued, or the error because of which it never will be."""

OnCounted = Callable[[int, errors.LudusError | None], None]
"""Called with how many of the first segments are queued, or the error because of which none ever will be."""

_LOG = logging.getLogger(__name__)
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_NO_KEYS: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class Item:
    """A segment, or whatever else the buffer is of, and the id that it was pushed under."""

    segment: Any
    segment_id: str


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
        self._evicts = settings.full == buffer_settings.DROP_OLDEST
        self._clock = clock
        self._changed = threading.Condition()
        self._table = settings.make_table(seed=seed)
        self._rng = np.random.default_rng(seed)
        self._items = StoredItems(self.kind, num_slots=self._table.num_slots, compress=settings.compress)
        self._returned: deque[Item] = deque()  # given back: they are the first again
        self._waiting: dict[str, _Offer] = {}  # by id, in the order they came
        self._seen = SeenSegments()  # what was queued, ever
        self._counted = PushCounts()
        self._is_closed = False
        self._num_pushed = self._num_taken = self._num_duplicates = self._num_rows_taken = self._num_dropped = 0
        self._num_evicted = 0
        self._full_s = 0.0
        self._log: ItemLog | None = None
        if folder is not None:
            self._recover(folder)

    def __len__(self) -> int:
        return self._table.size + len(self._returned)

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
            if not self._insert([item], self._checked(priority), is_answered=False):
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
                items, priorities = [Item(segment=segment, segment_id=segment_id)], self._checked(priority)
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
            count = self._insert(items, self._checked(priorities, len(items)), push_id=push_id)
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
                checked = self._checked(priorities, len(items))
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

    def _checked(self, priorities: Any, num: int | None = None) -> Floats | None:
        """Raises `DataError` before anything is queued."""
        if priorities is None:
            return None
        if not self.settings.uses_priorities:
            raise errors.DataError(
                f"sampler={self.settings.sampler!r} and remover={self.settings.remover!r} use no priorities; nothing "
                "was changed. Push without, or declare the buffer with sampler='prioritised'."
            )
        return self._table.check_priorities(np.atleast_1d(priorities), 1 if num is None else num)

    def _count_again(self, push_id: str) -> int | None:
        known = self._counted.again(push_id)
        self._num_duplicates += known is not None
        return known

    def _expect_open(self) -> None:
        if self._is_closed:
            raise errors.Unreachable("the buffer was closed; the segment was not queued")

    def _is_duplicate(self, segment_id: str) -> bool:
        seen = self._seen.has(segment_id)
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
        num = 0 if self._waiting and not is_first else self._num_insertable(len(items))
        if not num and (items and not is_answered):
            return 0
        self._compact()
        skipped = max(0, num - self._capacity)  # of so many at once the last ones stay
        queued = items[skipped:num]
        record = {
            "do": "insert",
            "keys": self._items.new_keys(len(queued)),
            "priorities": None if priorities is None else priorities[skipped:num],
            "ids": [item.segment_id for item in queued],
            "push": push_id,
            "skipped": skipped,
        }
        contents = [self._items.pack(item.segment) for item in queued]
        if self._log is not None:
            try:
                self._log.append({**record, "items": [self._items.send(content) for content, _ in contents]})
            except OSError as error:
                raise errors.DataError(f"{self._log.folder} cannot be written ({error}); nothing was queued") from error
        self._apply_insert(record, contents)
        self._changed.notify_all()
        return num

    def _apply_insert(self, record: Mapping[str, Any], contents: Sequence[tuple[Any, int]]) -> None:
        keys, ids, skipped = record["keys"], record["ids"], record["skipped"]
        self._items.add(keys, contents, ids)
        gone = self._table.insert(keys, record["priorities"])
        self._items.remove(gone)
        self._num_evicted += len(gone) + skipped
        self._num_pushed += len(keys) + skipped
        if record["push"]:
            self._counted.note(record["push"], len(keys) + skipped)
        else:
            for each in ids:
                self._seen.add(each)

    def _num_insertable(self, num: int) -> int:
        """How many of so many may be queued now, by the capacity and by the limiter."""
        room = num if self._evicts else self._capacity - len(self)
        return self._table.num_insertable(min(num, room))

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
        than a full buffer has.
        """
        if (num_segments is None) == (min_rows is None):
            raise errors.ConfigError("take either num_segments or min_rows")
        wanted = at_least if at_least is not None else num_segments
        if wanted is not None and not 1 <= wanted <= self._capacity:
            raise errors.ConfigError(f"cannot take {wanted} segments at once from a buffer of {self._capacity}")
        with self._changed:
            if timeout_s > 0:
                self._changed.wait_for(
                    lambda: self._is_closed or self._count(num_segments, min_rows, at_least), timeout_s
                )
            taken = self._draw(self._count(num_segments, min_rows, at_least))[0]
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
                self._changed.wait_for(lambda: self._is_closed or self._can_sample(num), timeout_s)
            if not self._can_sample(num):
                return None
            taken, keys, probabilities = self._draw(num)
            queued = self._admit()
        for callback, count, error in queued:
            callback(count, error)
        return Sampled([item.segment for item in taken], keys, probabilities)

    def update_priorities(self, keys: Any, priorities: Any) -> int:
        """Keys that are gone are ignored; how many were there."""
        keys = np.asarray(keys, np.int64)
        with self._changed:
            priorities = self._checked(priorities, len(keys))
            assert priorities is not None
            if self._log is not None:
                self._compact()
                self._note({"do": "update", "keys": keys, "priorities": priorities})
            num = self._table.update_priorities(keys, priorities)
            self._changed.notify_all()
            return num

    def give_back(self, items: Sequence[Item]) -> None:
        """Put back what was just taken, as the first, as if it had not been. For once it may be past the capacity."""
        num_rows = sum(self.kind.num_rows(item.segment) for item in items)
        with self._changed:
            if self._log is not None:
                self._compact()
                sent = [self._items.send(item.segment) for item in items]
                ids = [item.segment_id for item in items]
                self._note({"do": "give_back", "items": sent, "ids": ids, "num_rows": num_rows})
            self._returned.extendleft(reversed(items))
            self._num_taken -= len(items)
            self._num_rows_taken -= num_rows
            self._changed.notify_all()

    def _can_sample(self, num: int) -> bool:
        num -= len(self._returned)
        return num <= 0 or self._table.can_sample(num)

    def _count(self, num_segments: int | None, min_rows: int | None, at_least: int | None) -> int:
        """How many are to be taken; 0 when there are not enough."""
        if num_segments is not None:
            enough = num_segments if at_least is None else at_least
            most, num_returned = max(num_segments, enough), len(self._returned)
            count = num_returned + self._table.num_samplable(most - num_returned)
            return min(num_segments, count) if count >= enough else 0
        assert min_rows is not None
        if self.settings.sampler != "fifo" or self.settings.times != 1:
            raise errors.ConfigError("min_rows is for a queue: a buffer whose sampler is fifo, each item once")
        rows = 0
        for count, num_rows in enumerate(self._rows(), 1):
            rows += num_rows
            if rows >= min_rows:
                return count
        if len(self) >= self._capacity:
            raise errors.ConfigError(
                f"the buffer is full with {self._capacity} segments of {rows} rows, and {min_rows} rows are asked for: "
                "they would never come. Give it more capacity."
            )
        return 0

    def _rows(self) -> Iterator[int]:
        """Of each item, from the oldest on."""
        for item in self._returned:
            yield self.kind.num_rows(item.segment)
        yield from self._items.num_rows()

    def _draw(self, num: int) -> tuple[list[Item], Ints, Floats]:
        """So many as `_count` or `_can_sample` allowed, those that were given back first: their keys are -1."""
        if not num:
            return [], _NO_KEYS, np.empty(0)
        self._compact()
        num_returned = min(num, len(self._returned))
        keys, probabilities = _NO_KEYS, np.empty(0)
        if num > num_returned:
            keys, probabilities = self._table.sample(num - num_returned, self._rng)
        taken = [self._returned.popleft() for _ in range(num_returned)]
        taken += [Item(segment=segment, segment_id=each) for segment, each in self._items.get(keys)]
        num_rows = sum(self.kind.num_rows(item.segment) for item in taken)
        if self._log is not None:
            self._note({"do": "sample", "keys": keys, "num_returned": num_returned, "num_rows": num_rows})
        self._forget_used_up(keys)
        self._num_taken += len(taken)
        self._num_rows_taken += num_rows
        if num_returned:
            keys = np.concatenate((np.full(num_returned, -1), keys))
            probabilities = np.concatenate((np.ones(num_returned), probabilities))
        return taken, keys, probabilities

    def _forget_used_up(self, keys: Ints) -> None:
        if self.settings.times and len(keys):
            keys = np.unique(keys)
            self._items.remove(keys[~self._table.has(keys)])

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
            table = self._table.statistics()
            is_full = not self._evicts and len(self) >= self._capacity
            full = f"inserting waits for samples: the buffer is full with {len(self)} items" if is_full else ""
            return BufferStats(
                num_pushed=self._num_pushed,
                num_taken=self._num_taken,
                num_dropped=self._num_dropped,
                num_duplicates=self._num_duplicates,
                num_waiting_producers=len(self._waiting),
                num_rows_taken=self._num_rows_taken,
                size=len(self),
                capacity=self._capacity,
                full_s=self._full_s + sum(now - offer.since for offer in self._waiting.values()),
                num_evicted=self._num_evicted,
                inserting=full or table.inserting,
                sampling="" if self._returned else table.sampling,
            )

    def why_not_sample(self, num: int) -> str:
        """Why a `sample` of so many must wait; empty: it need not."""
        with self._changed:
            if self._can_sample(num):
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
            return {**self._save_counts(), **self._items.save()}

    def _save_counts(self) -> dict[str, Any]:
        return {
            "returned": [[item.segment_id, self.kind.send(item.segment)] for item in self._returned],
            "table": self._table.save(),
            "rng": save_rng(self._rng),
            "seen": self._seen.save(),
            "counted": self._counted.save(),
            "num_pushed": self._num_pushed,
            "num_taken": self._num_taken,
            "num_dropped": self._num_dropped,
            "num_duplicates": self._num_duplicates,
            "num_rows_taken": self._num_rows_taken,
            "num_evicted": self._num_evicted,
            "full_s": self._full_s,
        }

    def restore(self, saved: Nest) -> None:
        """Go on where `save` was called. Raises `DataError` unless nothing has been pushed here yet."""
        with self._changed:
            if self._num_pushed or self._waiting:
                raise errors.DataError("a buffer is restored before anything is pushed to it")
            self._restore_counts(saved)
            self._items.restore(saved)
            if self._log is not None:
                self._snapshot()
            self._changed.notify_all()

    def _restore_counts(self, saved: Nest) -> None:
        self._table.restore(saved["table"])
        restore_rng(self._rng, saved["rng"])
        self._returned.extend(
            Item(segment=self.kind.read(segment), segment_id=segment_id) for segment_id, segment in saved["returned"]
        )
        self._seen.restore(saved["seen"])
        self._counted.restore(saved["counted"])
        self._num_dropped = saved["num_dropped"]
        self._num_pushed, self._num_taken = saved["num_pushed"], saved["num_taken"]
        self._num_duplicates, self._num_rows_taken = saved["num_duplicates"], saved["num_rows_taken"]
        self._num_evicted = saved["num_evicted"]
        self._full_s = saved["full_s"]

    def close(self) -> None:
        """Accept no more: producers that wait for room get an error, consumers that wait for segments get none."""
        with self._changed:
            self._is_closed = True
            waiting, self._waiting = self._waiting, {}
            log, self._log = self._log, None
            self._changed.notify_all()
        if log is not None:
            log.close()
        for offer in waiting.values():
            for callback in offer.callbacks:
                callback(0, errors.Unreachable("the buffer was closed; the segment was not queued"))

    # -- what survives the process --------------------------------------------------------------------------------

    def _note(self, record: Nest) -> None:
        """What has happened, or will in any case: on a full disk it is forgotten if the process is killed."""
        assert self._log is not None
        try:
            self._log.append(record)
        except OSError as error:
            _LOG.error("%s cannot be written, so this is lost with the process: %s", self._log.folder, error)

    def _compact(self) -> None:
        """If the log has grown, go on in a new one; a thread writes what is there now. Before anything is changed."""
        if self._log is not None and self._log.is_grown:
            self._snapshot()

    def _snapshot(self) -> None:
        assert self._log is not None
        self._log.take_snapshot(itertools.chain([{"do": "restore", **self._save_counts()}], self._items.snapshot()))

    def _recover(self, folder: Path) -> None:
        log = ItemLog(folder, head={"do": "settings", "settings": self.settings.as_dict(), "of": self.kind.name})
        try:
            for record in log.read():
                self._replay(record)
            log.start()
        except BaseException:
            log.close()
            raise
        self._log = log

    def _expect_same(self, settings: BufferSettings, of: str) -> None:
        if of != self.kind.name or replace(settings, compress=self.settings.compress) != self.settings:
            raise errors.ConfigError(
                f"what is kept there is of a buffer of {of}s with {settings}, not {self.settings}; it was not touched. "
                "Use the same settings, or another name."
            )

    def _replay(self, record: Nest) -> None:
        """Do what the record says was done."""
        match record["do"]:
            case "settings":
                self._expect_same(BufferSettings(**record["settings"]), record["of"])
            case "restore":
                self._restore_counts(record)
            case "items":
                self._items.restore(record)
            case "insert":
                self._apply_insert(record, [self._items.read(item) for item in record["items"]])
            case "sample":
                for _ in range(record["num_returned"]):
                    self._returned.popleft()
                self._table.count_samples(record["keys"])
                self._forget_used_up(record["keys"])
                self._num_taken += record["num_returned"] + len(record["keys"])
                self._num_rows_taken += record["num_rows"]
            case "update":
                self._table.update_priorities(record["keys"], record["priorities"])
            case "give_back":
                pairs = zip(record["items"], record["ids"], strict=True)
                back = [Item(segment=self._items.read(sent)[0], segment_id=each) for sent, each in pairs]
                self._returned.extendleft(reversed(back))
                self._num_taken -= len(back)
                self._num_rows_taken -= record["num_rows"]
            case other:
                raise errors.DataError(f"{other!r} in the log of a buffer is of a later version; use that version")
