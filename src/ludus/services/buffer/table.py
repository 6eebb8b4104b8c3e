"""A table: which items can be sampled, and how. It knows keys and slots, not data.

    table = Table(num_slots=N, capacity=C, sampler=Prioritised(exponent=0.6), remover=Fifo(), limiter=MinSize())
    removed = table.insert(keys)                       # keys that had to go
    drawn = table.sample(256, rng)                     # Drawn(keys, probabilities)
    table.update_priorities(drawn.keys, priorities)

A key is an int64, and its item's data is in slot `key % num_slots`; of two keys, the larger is the newer. A table never
waits: its owner, which has the lock, asks `can_insert` and `can_sample` first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.errors import ConfigError, DataError
from ludus.options import option
from ludus.services.buffer.limiters import Limiter, MinSize, TableCounts
from ludus.services.buffer.selectors import (
    Fifo,
    Items,
    OrderedSelector,
    RandomSelector,
    Selector,
    SelectorSettings,
    Uniform,
)

__all__ = ["MAX_PRIORITY", "Drawn", "Storage", "Table", "TableSettings", "TableStats", "as_keys"]

MAX_PRIORITY = 1e30
"""Sums of powers of priorities stay finite up to here."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

Storage = Callable[[str, Any, tuple[int, ...]], NDArray[Any]]
"""`storage(name, dtype, shape)`: a zeroed array, or a mapped one with what an earlier process left in it."""

_COUNTERS = ("inserted", "sampled", "removed", "evicted", "exhausted", "high", "max_priority", "is_used")
_NO_KEYS: Ints = np.empty(0, np.int64)


class Drawn(NamedTuple):
    """What was sampled: an item may be there more than once."""

    keys: Ints
    probabilities: Floats  # of each draw; 1 for samplers that have an order


@dataclass(frozen=True, kw_only=True)
class TableStats:
    """`num_inserted` = `size` + `num_removed` + `num_evicted` + `num_exhausted` always."""

    size: int
    capacity: int
    num_inserted: int
    num_sampled: int  # draws
    num_removed: int  # by `remove`
    num_evicted: int  # by the remover because the table was full, or because their slot was needed
    num_exhausted: int  # sampled as often as `max_times_sampled` allows
    inserting: str  # why the next insert must wait; empty: it need not
    sampling: str  # why the next sample must wait; empty: it need not


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """What makes a table, without its place."""

    capacity: int = option(0, help="items that it keeps; 0: as many as there are slots", minimum=0)
    sampler: SelectorSettings = field(default_factory=Uniform)  # which items are sampled
    remover: SelectorSettings = field(default_factory=Fifo)  # which items go when it is full
    limiter: Limiter = field(default_factory=MinSize)  # when inserts and samples wait
    max_times_sampled: int = option(0, help="an item goes after so many samples; 0: never", minimum=0)

    def make(self, num_slots: int, *, storage: Storage | None = None) -> Table:
        return Table(
            num_slots=num_slots,
            capacity=self.capacity,
            sampler=self.sampler,
            remover=self.remover,
            limiter=self.limiter,
            max_times_sampled=self.max_times_sampled,
            storage=storage,
        )


class Table:
    """Not safe to use from several threads at once.

    `storage` gives the arrays of keys, priorities, times sampled and counters, for tables that outlive their process.
    `seed` is of the remover's draws, if it draws.
    """

    def __init__(
        self,
        *,
        num_slots: int,
        capacity: int = 0,
        sampler: SelectorSettings | None = None,
        remover: SelectorSettings | None = None,
        limiter: Limiter | None = None,
        max_times_sampled: int = 0,
        seed: int = 0,
        storage: Storage | None = None,
    ) -> None:
        sampler, remover = sampler or Uniform(), remover or Fifo()
        if num_slots < 1 or not 0 <= capacity <= num_slots:
            raise ConfigError(
                f"capacity={capacity} of {num_slots} slots: a table has 1 slot or more, and no more items"
            )
        if max_times_sampled < 0:
            raise ConfigError(f"max_times_sampled={max_times_sampled}: it is 1 or more, or 0 for no limit")
        storage = storage or _in_memory
        self.limiter: Limiter = limiter or MinSize(min_size=1)
        self.num_slots = num_slots
        self.capacity = capacity or num_slots
        self.max_times_sampled = max_times_sampled
        self._counters: Floats = storage("counters", np.float64, (len(_COUNTERS),))
        uses_priorities = sampler.uses_priorities or remover.uses_priorities
        self._items = Items(
            key=storage("key", np.int64, (num_slots,)),
            priority=storage("priority", np.float64, (num_slots,)) if uses_priorities else None,
        )
        self._times: NDArray[np.int32] | None = (
            storage("times_sampled", np.int32, (num_slots,)) if max_times_sampled else None
        )
        self._sampler = sampler.make(self._items)
        # With a place for every slot there is always room: an item goes when its slot is needed.
        self._remover = remover.make(self._items) if self.capacity < num_slots else None
        self._selectors: list[Selector] = [self._sampler] + ([self._remover] if self._remover else [])
        self._rng = np.random.default_rng(seed)
        self._num_inserted = self._num_sampled = 0
        self._num_removed = self._num_evicted = self._num_exhausted = 0
        self._max_priority = 1.0
        self._num_draws_left = 0  # of all items together, if `max_times_sampled` limits them
        if self._counters[-1]:
            self._adopt()
        else:
            self._items.key.fill(-1)
            self._commit()

    # -- inserting

    @property
    def size(self) -> int:
        return self._items.size

    @property
    def max_priority(self) -> float:
        """The largest priority that any item has ever had; 1 at first."""
        return self._max_priority

    def can_insert(self, n: int = 1) -> bool:
        """Raises `ConfigError` if so many can never be inserted at once."""
        return self.limiter.can_insert(n, self._counts())

    def num_insertable(self, n: int) -> int:
        """How many of `n` may be inserted now, one after another: more may follow each than all at once."""
        size, inserted, sampled = self._counts()
        may = self.limiter.can_insert
        return _largest(n, lambda k: may(1, TableCounts(size + k - 1, inserted + k - 1, sampled)))

    def insert(self, keys: Ints, priorities: NDArray[Any] | None = None) -> Ints:
        """Add items. Returns the keys of those that went for it: in their slots, or chosen by the remover.

        Without `priorities` they get the largest that there ever was, so that each is sampled soon. The remover chooses
        among the items that were there before. Of more than `capacity` at once the last ones stay. A key is used once,
        and those of one call have slots of their own.
        """
        keys = np.asarray(keys, np.int64)
        num = len(keys)
        if not num:
            return _NO_KEYS
        if priorities is not None:
            priorities = self.check_priorities(priorities, num)
        gone: list[Ints] = []
        if num > self.capacity:
            gone.append(keys[: -self.capacity].copy())
            keys = keys[-self.capacity :]
            priorities = None if priorities is None else priorities[-self.capacity :]
        items = self._items
        slots = keys % self.num_slots
        old = items.key.take(slots)
        if np.maximum.reduce(old) >= 0:
            old = old[old >= 0]
            gone.append(old)
            self._drop(old, old % self.num_slots)
        excess = items.size + len(keys) - self.capacity
        if excess > 0:
            chosen = self._choose_to_remove(excess)
            gone.append(chosen)
            self._drop(chosen, chosen % self.num_slots)
        if items.priority is not None:
            if priorities is not None:
                self._max_priority = max(self._max_priority, float(priorities.max()))
            items.priority[slots] = self._max_priority if priorities is None else priorities
        if self._times is not None:
            self._times[slots] = 0
            self._num_draws_left += len(keys) * self.max_times_sampled
        items.key[slots] = keys
        items.size += len(keys)
        if items.high < self.num_slots:
            items.high = max(items.high, int(np.maximum.reduce(slots)) + 1)
        for selector in self._selectors:
            selector.add(keys, slots)
        removed = np.concatenate(gone) if gone else _NO_KEYS
        self._num_inserted += num
        self._num_evicted += len(removed)
        self._commit()
        return removed

    def _choose_to_remove(self, num: int) -> Ints:
        remover = self._remover
        if isinstance(remover, OrderedSelector):
            return remover.first(num)
        assert isinstance(remover, RandomSelector)
        chosen: Ints = _NO_KEYS
        while len(chosen) < num and remover.can_draw:
            drawn = _distinct(remover.draw(num - len(chosen), self._rng)[0])
            # Without replacement: where one weight is far above the others, it would be drawn for ever.
            remover.remove(drawn, drawn % self.num_slots)
            chosen = _distinct(np.concatenate((chosen, drawn)))
        if len(chosen) < num:  # the others have priority 0
            live = self._items.key[self._items.key >= 0]
            others = np.setdiff1d(live, chosen)
            chosen = np.concatenate((chosen, self._rng.choice(others, num - len(chosen), replace=False)))
        return chosen

    # -- sampling

    def can_sample(self, n: int = 1) -> bool:
        """Raises `ConfigError` if so many can never be sampled at once."""
        return self.limiter.can_sample(n, self._counts()) and not self._why_not_draw(n)

    def _why_not_draw(self, n: int) -> str:
        if not self._items.size:
            return "sampling waits for inserts: the table is empty"
        if self._times is not None and self._num_draws_left < n:
            return f"sampling waits for inserts: the items may be sampled {self._num_draws_left} times more"
        if isinstance(self._sampler, RandomSelector) and not self._sampler.can_draw:
            return "sampling waits for priorities: all are 0"
        return ""

    def num_samplable(self, n: int) -> int:
        """How many of `n` may be sampled now, one after another.

        With `max_times_sampled` above 1 the limiter is asked as if no item were used up by them.
        """
        size, inserted, sampled = self._counts()
        may = self.limiter.can_sample
        used_up = 1 if self.max_times_sampled == 1 else 0
        return _largest(
            n,
            lambda k: (
                not self._why_not_draw(k) and may(1, TableCounts(size - used_up * (k - 1), inserted, sampled + k - 1))
            ),
        )

    def sample(self, n: int, rng: np.random.Generator) -> Drawn:
        """`n` draws; an item that has been drawn `max_times_sampled` times is gone. Does not ask the limiter.

        Samplers with an order give their first item again and again, until it is gone. Raises `DataError`, and draws
        nothing, if there are not enough; draws fewer if `max_times_sampled` leaves only items of priority 0.
        """
        if reason := self._why_not_draw(n):
            raise DataError(f"cannot sample {n} items now: {reason}. Ask can_sample first")
        if isinstance(self._sampler, OrderedSelector):
            keys, probabilities = self._take_in_order(n, self._sampler), np.ones(n)
        else:
            assert isinstance(self._sampler, RandomSelector)
            if self._times is None:
                keys, probabilities = self._sampler.draw(n, rng)
            else:
                keys, probabilities = self._draw_limited(n, rng, self._sampler)
        self._num_sampled += len(keys)
        self._commit()
        return Drawn(keys, probabilities)

    def _take_in_order(self, n: int, sampler: OrderedSelector) -> Ints:
        if self._times is None:
            return sampler.first(1).repeat(n)
        keys = sampler.first(min(n, self._items.size))
        left = self.max_times_sampled - self._times.take(keys % self.num_slots)
        drawn: Ints = keys.repeat(left)[:n]
        self._count_draws(drawn)
        return drawn

    def _draw_limited(self, n: int, rng: np.random.Generator, sampler: RandomSelector) -> tuple[Ints, Floats]:
        """One draw after another, each from what the ones before have left. Draws in vain are made again."""
        assert self._times is not None
        found: list[tuple[Ints, Floats]] = []
        lacking = n
        while lacking and sampler.can_draw:
            keys, probabilities = sampler.draw(lacking, rng)
            times = self._times.take(keys % self.num_slots) + _ranks(keys)
            is_allowed = times < self.max_times_sampled
            keys, probabilities = keys[is_allowed], probabilities[is_allowed]
            self._count_draws(keys)
            found.append((keys, probabilities))
            lacking -= len(keys)
        return np.concatenate([keys for keys, _ in found]), np.concatenate([p for _, p in found])

    def _count_draws(self, keys: Ints) -> None:
        assert self._times is not None
        slots = keys % self.num_slots
        np.add.at(self._times, slots, 1)
        self._num_draws_left -= len(keys)
        is_over = self._times.take(slots) >= self.max_times_sampled
        if is_over.any():
            gone = _distinct(keys[is_over])
            self._num_exhausted += len(gone)
            self._drop(gone, gone % self.num_slots)

    def count_samples(self, keys: Ints) -> None:
        """Count draws that `sample` made in an earlier process. Keys that are gone are ignored."""
        keys = np.asarray(keys, np.int64)
        keys = keys[self._items.live(keys)]
        if len(keys) and self._times is not None:
            keys = keys[self._times.take(keys % self.num_slots) + _ranks(keys) < self.max_times_sampled]
            self._count_draws(keys)
        self._num_sampled += len(keys)
        self._commit()

    @property
    def mass(self) -> float:
        """What the sampler draws in proportion to, over all items: their number, or the sum of their weights."""
        return self._sampler.mass if isinstance(self._sampler, RandomSelector) else float(self._items.size)

    # -- changing

    def update_priorities(self, keys: Ints, priorities: NDArray[Any]) -> int:
        """Of a key that is given twice the last counts; keys that are gone are ignored. How many were there."""
        keys = as_keys(keys)
        priorities = self.check_priorities(priorities, len(keys))
        slots = keys % self.num_slots
        live = self._items.live(keys)
        num = int(np.count_nonzero(live))
        if num < len(keys):
            keys, slots, priorities = keys[live], slots[live], priorities[live]
        if not num or self._items.priority is None:
            return num
        self._items.priority[slots] = priorities
        largest = float(np.maximum.reduce(priorities))
        if largest > self._max_priority:
            self._max_priority = largest
            self._commit()
        for selector in self._selectors:
            selector.update(keys, slots)
        return num

    def remove(self, keys: Ints) -> int:
        """Take items out; keys that are gone are ignored. How many were there."""
        keys = np.asarray(keys, np.int64)
        if not len(keys):
            return 0
        keys = keys[self._items.live(keys)]
        if len(keys) > 1:
            keys = _distinct(keys)
        if len(keys):
            self._drop(keys, keys % self.num_slots)
            self._num_removed += len(keys)
            self._commit()
        return len(keys)

    def evict(self, keys: Ints) -> int:
        """`remove` for the owner, whose data goes: counted as what the remover takes. The keys are distinct."""
        keys = keys[self._items.live(keys)]
        if len(keys):
            self._drop(keys, keys % self.num_slots)
            self._num_evicted += len(keys)
            self._commit()
        return len(keys)

    def has(self, keys: Ints) -> NDArray[np.bool_]:
        """Which of them are there."""
        return self._items.live(np.asarray(keys, np.int64))

    def keys(self) -> Ints:
        """All, in ascending order."""
        return np.sort(self._items.key[self._items.key >= 0])

    def priorities(self, keys: Ints) -> Floats:
        """Of items that are there; all 1 if no selector asks for priorities."""
        if self._items.priority is None:
            return np.ones(len(keys))
        return self._items.priority.take(np.asarray(keys, np.int64) % self.num_slots)

    def _drop(self, keys: Ints, slots: Ints) -> None:
        """Distinct keys that are there."""
        if self._times is not None:
            self._num_draws_left -= len(keys) * self.max_times_sampled - int(self._times.take(slots).sum())
        self._items.key[slots] = -1
        self._items.size -= len(keys)
        for selector in self._selectors:
            selector.remove(keys, slots)

    def check_priorities(self, priorities: NDArray[Any], num: int) -> Floats:
        """As an array. Raises `DataError` unless there are `num`, all of which an item may have."""
        try:
            priorities = np.asarray(priorities, np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"priorities are numbers, one for each key ({error}); nothing was changed") from None
        if priorities.shape != (num,):
            raise DataError(
                f"{num} keys with priorities of shape {priorities.shape}; nothing was changed. Give one each"
            )
        if num and not (np.minimum.reduce(priorities) >= 0 and np.maximum.reduce(priorities) <= MAX_PRIORITY):
            raise DataError(f"a priority is not within 0 and {MAX_PRIORITY:g}: {priorities}; nothing was changed")
        return priorities

    # -- stats, checkpoints

    def _counts(self) -> TableCounts:
        return TableCounts(self._items.size, self._num_inserted, self._num_sampled)

    def statistics(self) -> TableStats:
        counts = self._counts()
        return TableStats(
            size=self._items.size,
            capacity=self.capacity,
            num_inserted=self._num_inserted,
            num_sampled=self._num_sampled,
            num_removed=self._num_removed,
            num_evicted=self._num_evicted,
            num_exhausted=self._num_exhausted,
            inserting=self.limiter.why_not_insert(counts),
            sampling=self.limiter.why_not_sample(counts) or self._why_not_draw(1),
        )

    def _commit(self) -> None:
        self._counters[:] = (
            self._num_inserted,
            self._num_sampled,
            self._num_removed,
            self._num_evicted,
            self._num_exhausted,
            self._items.high,
            self._max_priority,
            1.0,
        )

    def save(self) -> Nest:
        """For the codec; nothing is shared. A table that is restored from it draws the same from the same generator."""
        items, high = self._items, self._items.high
        return {
            "counters": self._counters.copy(),
            "key": items.key[:high].copy(),
            "priority": None if items.priority is None else items.priority[:high].copy(),
            "times_sampled": None if self._times is None else self._times[:high].copy(),
            "sampler": self._sampler.save(),
            "rng": save_rng(self._rng),
        }

    def restore(self, saved: Nest) -> None:
        """Go on where `save` was called, in a table of the same settings. Raises `DataError` for another's."""
        self.expect_own(saved)
        high = len(saved["key"])
        self._items.key[high:] = -1
        self._items.key[:high] = saved["key"]
        if self._items.priority is not None:
            self._items.priority[:high] = saved["priority"]
        if self._times is not None:
            self._times[:high] = saved["times_sampled"]
        self._counters[:] = saved["counters"]
        restore_rng(self._rng, saved["rng"])
        self._adopt(saved["sampler"])

    def expect_own(self, saved: Nest) -> None:
        """Raises `DataError` for what a table of other settings has saved."""
        high = len(saved["key"])
        fits = high <= self.num_slots and len(saved["counters"]) == len(_COUNTERS)
        fits = fits and (saved["priority"] is None) == (self._items.priority is None)
        fits = fits and (saved["times_sampled"] is None) == (self._times is None)
        if not fits or not _are_in_place(saved["key"], self.num_slots).all():
            raise DataError("this was saved by a table of other settings; nothing was restored. Use the same settings")

    def _adopt(self, sampler: Any = None) -> None:
        """Go on from what the arrays hold. A process that was killed may have counted less than it wrote."""
        inserted, sampled, removed, evicted, exhausted, high, max_priority, _ = self._counters.tolist()
        self._items.key[~_are_in_place(self._items.key, self.num_slots)] = -1  # of no item: the file was damaged
        live = self._items.key >= 0
        self._items.size = size = int(np.count_nonzero(live))
        top = int(np.flatnonzero(live)[-1]) + 1 if size else 0
        self._items.high = max(int(high), top)
        self._num_sampled, self._num_removed = int(sampled), int(removed)
        self._num_evicted, self._num_exhausted = int(evicted), int(exhausted)
        self._num_inserted = max(int(inserted), size + self._num_removed + self._num_evicted + self._num_exhausted)
        self._num_evicted = self._num_inserted - size - self._num_removed - self._num_exhausted
        self._max_priority = max_priority
        if self._times is not None:
            self._num_draws_left = size * self.max_times_sampled - int(self._times[live].sum())
        for selector in self._selectors:
            selector.rebuild(sampler if selector is self._sampler else None)
        self._commit()


def _in_memory(name: str, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.zeros(shape, dtype)


def as_keys(keys: Any) -> Ints:
    """What a caller gives as keys, as an array. Raises `DataError` unless they are integers along one axis."""
    try:
        array = np.asarray(keys)
    except (TypeError, ValueError):  # lists of several lengths
        array = np.empty(())
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise DataError(f"keys are integers along one axis, not {array.dtype} of shape {array.shape}; nothing was done")
    return array.astype(np.int64, copy=False)


def _are_in_place(keys: Ints, num_slots: int) -> NDArray[np.bool_]:
    """Of the keys of the first slots: which are empty, or of an item of this very slot."""
    return np.asarray((keys < 0) | (keys % num_slots == np.arange(len(keys))))


def _largest(n: int, is_allowed: Callable[[int], bool]) -> int:
    """The largest of 0 to `n` that is allowed, where all smaller ones are, too."""
    if n < 1 or is_allowed(n):
        return max(0, n)
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_allowed(middle) else (low, middle)
    return low


def _distinct(keys: Ints) -> Ints:
    """In the order of their first places."""
    _, first = np.unique(keys, return_index=True)
    return keys[np.sort(first)]


def _ranks(keys: Ints) -> Ints:
    """How often each key is there before its place."""
    order = keys.argsort(kind="stable")
    places = np.arange(len(keys))
    ordered = keys[order]
    starts = np.empty(len(keys), np.bool_)
    starts[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = places - np.maximum.accumulate(np.where(starts, places, 0))
    return ranks
