"""The items of a buffer with the table over them, what was ever pushed, and the log of it all.

Whatever changes them is a record: it is written to the log, if there is one, and applied; the next process reads the
log and applies the same records.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.data.nest import Nest
from ludus.data.record_log import RecordLog
from ludus.data.rng import restore_rng, save_rng
from ludus.services.buffer import buffer_settings
from ludus.services.buffer.buffer_settings import BufferSettings
from ludus.services.buffer.kinds import Kind
from ludus.services.buffer.push_counts import PushCounts
from ludus.services.buffer.seen_segments import SeenSegments
from ludus.services.buffer.stored_items import StoredItems

__all__ = ["Item", "ItemTable"]

_LOG = logging.getLogger(__name__)
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_NO_KEYS: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class Item:
    """A segment, or whatever else the buffer is of, and the id that it was pushed under."""

    segment: Any
    segment_id: str


class ItemTable:
    """For one thread at a time. Items that are given back are the first again, whatever the sampler."""

    def __init__(self, settings: BufferSettings, kind: Kind, *, seed: int, folder: Path | None) -> None:
        self.settings = settings
        self.seen = SeenSegments()  # ids of what was queued, ever
        self.counted = PushCounts()  # and of pushes of many
        self.num_pushed = self.num_taken = self.num_rows_taken = self.num_evicted = 0
        self.table = settings.make_table(seed=seed)
        self._kind = kind
        self._evicts = settings.full == buffer_settings.DROP_OLDEST
        self._rng = np.random.default_rng(seed)
        self._items = StoredItems(kind, num_slots=self.table.num_slots, compress=settings.compress)
        self._returned: deque[Item] = deque()
        self.log: RecordLog | None = None
        if folder is not None:
            self._recover(folder)

    def __len__(self) -> int:
        return self.table.size + len(self._returned)

    # -- inserting

    def check_priorities(self, priorities: Any, num: int) -> Floats | None:
        """As an array, or none. Raises `DataError` before anything is changed."""
        if priorities is None:
            return None
        if not self.settings.uses_priorities:
            raise errors.DataError(
                f"sampler={self.settings.sampler!r} and remover={self.settings.remover!r} use no priorities; nothing "
                "was changed. Push without, or declare the buffer with sampler='prioritised'."
            )
        return self.table.check_priorities(np.atleast_1d(np.asarray(priorities)), num)

    def num_insertable(self, num: int) -> int:
        """How many of so many may be queued now, by the capacity and by the limiter."""
        room = num if self._evicts else self.settings.capacity - len(self)
        return self.table.num_insertable(min(num, room))

    @property
    def is_full(self) -> bool:
        return not self._evicts and len(self) >= self.settings.capacity

    def insert(self, items: Sequence[Item], priorities: Floats | None, push_id: str) -> None:
        """All of them: as many as `num_insertable` allows. Without a `push_id` each item has an id of its own."""
        self._compact()
        skipped = max(0, len(items) - self.settings.capacity)  # of so many at once the last ones stay
        items = items[skipped:]
        record = {
            "do": "insert",
            "keys": self._items.new_keys(len(items)),
            "priorities": None if priorities is None else priorities[skipped:],
            "ids": [item.segment_id for item in items],
            "push": push_id,
            "skipped": skipped,
        }
        contents = [self._items.pack(item.segment) for item in items]
        if self.log is not None:
            try:
                self.log.append({**record, "items": [self._items.send(content) for content, _ in contents]})
            except OSError as error:
                raise errors.DataError(f"{self.log.folder} cannot be written ({error}); nothing was queued") from error
        self._apply_insert(record, contents)

    def _apply_insert(self, record: Mapping[str, Any], contents: Sequence[tuple[Any, int]]) -> None:
        keys, ids, skipped = record["keys"], record["ids"], record["skipped"]
        self._items.add(keys, contents, ids)
        gone = self.table.insert(keys, record["priorities"])
        self._items.remove(gone)
        self.num_evicted += len(gone) + skipped
        self.num_pushed += len(keys) + skipped
        if record["push"]:
            self.counted.note(record["push"], len(keys) + skipped)
        else:
            for each in ids:
                self.seen.add(each)

    # -- sampling

    def can_sample(self, num: int) -> bool:
        num -= len(self._returned)
        return num <= 0 or self.table.can_sample(num)

    def count(self, num_segments: int | None, min_rows: int | None, at_least: int | None) -> int:
        """How many are to be taken; 0 when there are not enough."""
        if num_segments is not None:
            enough = num_segments if at_least is None else at_least
            most, num_returned = max(num_segments, enough), len(self._returned)
            count = num_returned + self.table.num_samplable(most - num_returned)
            return min(num_segments, count) if count >= enough else 0
        assert min_rows is not None
        if self.settings.sampler != "fifo" or self.settings.times != 1:
            raise errors.ConfigError("min_rows is for a queue: a buffer whose sampler is fifo, each item once")
        rows = 0
        for count, num_rows in enumerate(self._rows(), 1):
            rows += num_rows
            if rows >= min_rows:
                return count
        if len(self) >= self.settings.capacity:
            raise errors.ConfigError(
                f"the buffer is full with {len(self)} segments of {rows} rows, and {min_rows} rows are asked for: they "
                "would never come. Give it more capacity."
            )
        return 0

    def _rows(self) -> Iterator[int]:
        """Of each item, from the oldest on."""
        for item in self._returned:
            yield self._kind.num_rows(item.segment)
        yield from self._items.num_rows()

    def draw(self, num: int) -> tuple[list[Item], Ints, Floats]:
        """So many as `count` or `can_sample` allowed, those that were given back first: their keys are -1."""
        if not num:
            return [], _NO_KEYS, np.empty(0)
        self._compact()
        num_returned = min(num, len(self._returned))
        keys, probabilities = _NO_KEYS, np.empty(0)
        if num > num_returned:
            keys, probabilities = self.table.sample(num - num_returned, self._rng)
        taken = [self._returned.popleft() for _ in range(num_returned)]
        taken += [Item(segment=segment, segment_id=each) for segment, each in self._items.get(keys)]
        num_rows = sum(self._kind.num_rows(item.segment) for item in taken)
        if self.log is not None:
            self._note({"do": "sample", "keys": keys, "num_returned": num_returned, "num_rows": num_rows})
        self._forget_used_up(keys)
        self.num_taken += len(taken)
        self.num_rows_taken += num_rows
        if num_returned:
            keys = np.concatenate((np.full(num_returned, -1), keys))
            probabilities = np.concatenate((np.ones(num_returned), probabilities))
        return taken, keys, probabilities

    def _forget_used_up(self, keys: Ints) -> None:
        if self.settings.times and len(keys):
            keys = np.unique(keys)
            self._items.remove(keys[~self.table.has(keys)])

    def update_priorities(self, keys: Ints, priorities: Floats) -> int:
        """Keys that are gone are ignored; how many were there."""
        self._compact()
        self._note({"do": "update", "keys": keys, "priorities": priorities})
        return self.table.update_priorities(keys, priorities)

    def give_back(self, items: Sequence[Item]) -> None:
        """Put back what was just drawn, as the first. For once there may be more than the capacity."""
        num_rows = sum(self._kind.num_rows(item.segment) for item in items)
        self._compact()
        if self.log is not None:
            sent = [self._items.send(item.segment) for item in items]
            ids = [item.segment_id for item in items]
            self._note({"do": "give_back", "items": sent, "ids": ids, "num_rows": num_rows})
        self._put_back(items, num_rows)

    def _put_back(self, items: Sequence[Item], num_rows: int) -> None:
        self._returned.extendleft(reversed(items))
        self.num_taken -= len(items)
        self.num_rows_taken -= num_rows

    def why_not_insert(self) -> str:
        if self.is_full:
            return f"inserting waits for samples: the buffer is full with {len(self)} items"
        return self.table.statistics().inserting

    def why_not_sample(self) -> str:
        return "" if self._returned else self.table.statistics().sampling

    # -- checkpoints

    def save(self) -> dict[str, Any]:
        """Nothing is copied but references."""
        return {**self._save_counts(), **self._items.save()}

    def _save_counts(self) -> dict[str, Any]:
        return {
            "returned": [[item.segment_id, self._kind.send(item.segment)] for item in self._returned],
            "table": self.table.save(),
            "rng": save_rng(self._rng),
            "seen": self.seen.save(),
            "counted": self.counted.save(),
            "num_pushed": self.num_pushed,
            "num_taken": self.num_taken,
            "num_rows_taken": self.num_rows_taken,
            "num_evicted": self.num_evicted,
        }

    def restore(self, saved: Nest) -> None:
        self._restore_counts(saved)
        self._items.restore(saved)
        if self.log is not None:
            self._snapshot()

    def _restore_counts(self, saved: Nest) -> None:
        self.table.restore(saved["table"])
        restore_rng(self._rng, saved["rng"])
        self._returned.extend(
            Item(segment=self._kind.read(segment), segment_id=segment_id) for segment_id, segment in saved["returned"]
        )
        self.seen.restore(saved["seen"])
        self.counted.restore(saved["counted"])
        self.num_pushed, self.num_taken = saved["num_pushed"], saved["num_taken"]
        self.num_rows_taken = saved["num_rows_taken"]
        self.num_evicted = saved["num_evicted"]

    def close(self) -> None:
        """Twice is fine."""
        if self.log is not None:
            self.log.close()
            self.log = None

    # -- what survives the process --------------------------------------------------------------------------------

    def _note(self, record: Nest) -> None:
        """What has happened, or will in any case: on a full disk it is forgotten if the process is killed."""
        if self.log is None:
            return
        try:
            self.log.append(record)
        except OSError as error:
            _LOG.error("%s cannot be written, so this is lost with the process: %s", self.log.folder, error)

    def _compact(self) -> None:
        """If the log has grown, go on in a new one; a thread writes what is there now. Before anything is changed."""
        if self.log is not None and self.log.is_grown:
            self._snapshot()

    def _snapshot(self) -> None:
        assert self.log is not None
        self.log.take_snapshot(itertools.chain([{"do": "restore", **self._save_counts()}], self._items.snapshot()))

    def _recover(self, folder: Path) -> None:
        log = RecordLog(folder, head={"do": "settings", "settings": self.settings.as_dict(), "of": self._kind.name})
        try:
            is_whole = True
            for record in log.read():
                is_whole &= record["do"] != "lost"
                self._replay(record)
            if not is_whole:  # again: later records may be of items that are lost
                self._settle()
            log.start()
        except BaseException:
            log.close()
            raise
        self.log = log

    def _expect_same(self, settings: BufferSettings, of: str) -> None:
        if of != self._kind.name or replace(settings, compress=self.settings.compress) != self.settings:
            raise errors.ConfigError(
                f"what is kept there is of a buffer of {of}s with {settings}, not {self.settings}; it was not touched. "
                "Use the same settings, or another name."
            )

    def _settle(self) -> None:
        """Make items, table and counts agree again, where records of either are lost."""
        stored = self._items.keys()
        self.table.evict(np.setdiff1d(self.table.keys(), stored))
        self._items.remove(self.table.insert(stored[~self.table.has(stored)]))
        if self.settings.times == 1:
            num = self.num_evicted + len(self)
            self.num_pushed = max(self.num_pushed, self.num_taken + num)
            self.num_taken = self.num_pushed - num

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
                for _ in range(min(record["num_returned"], len(self._returned))):
                    self._returned.popleft()
                self.table.count_samples(record["keys"])
                self._forget_used_up(record["keys"])
                self.num_taken += record["num_returned"] + len(record["keys"])
                self.num_rows_taken += record["num_rows"]
            case "update":
                self.table.update_priorities(record["keys"], record["priorities"])
            case "give_back":
                pairs = zip(record["items"], record["ids"], strict=True)
                back = [Item(segment=self._items.read(sent)[0], segment_id=each) for sent, each in pairs]
                self._put_back(back, record["num_rows"])
            case "lost":
                self._settle()
            case other:
                raise errors.DataError(f"{other!r} in the log of a buffer is of a later version; use that version")
