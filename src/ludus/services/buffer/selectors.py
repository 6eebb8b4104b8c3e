"""Selectors: which items of a table are sampled, and which are removed when it is full.

    Table(sampler=Prioritised(exponent=0.6), remover=Fifo(), ...)

`Uniform` and `Prioritised` draw at random. `Fifo`, `Lifo`, `MinHeap` and `MaxHeap` have an order: the oldest, the
newest, the smallest or the largest priority first, and among equal priorities the oldest. "Older" means a smaller key.

A settings object such as `Fifo()` makes the `Selector` that follows the items of one table. Selectors see keys and
slots; the table calls `add` and `update` after it has written its arrays, and `remove` after it has cleared the keys.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.options import option
from ludus.services.buffer.priority_sums import PrioritySums

__all__ = [
    "Fifo",
    "Items",
    "Lifo",
    "MaxHeap",
    "MinHeap",
    "OrderedSelector",
    "Prioritised",
    "RandomSelector",
    "Selector",
    "SelectorSettings",
    "Uniform",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass
class Items:
    """What a table has, by slot. Shared between the table, which writes it, and its selectors."""

    key: Ints  # -1: the slot is empty
    priority: Floats | None  # None: no selector asks for it
    size: int = 0
    high: int = 0  # slots from here on have always been empty

    def live(self, keys: Ints) -> NDArray[np.bool_]:
        return np.equal(self.key.take(keys % len(self.key)), keys)


class Selector:
    """Follows the items of a table. Keys and slots are arrays of the same length."""

    def add(self, keys: Ints, slots: Ints) -> None: ...

    def remove(self, keys: Ints, slots: Ints) -> None: ...

    def update(self, keys: Ints, slots: Ints) -> None: ...

    def rebuild(self, saved: Any = None) -> None:
        """Read all items of the table again."""

    def save(self) -> Any:
        """What `rebuild` cannot know from the items."""
        return None


class RandomSelector(Selector):
    """Draws at random, with replacement."""

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Keys, and the probability of each. The table is not empty."""
        raise NotImplementedError

    @property
    def can_draw(self) -> bool:
        return True

    @property
    def mass(self) -> float:
        """What it draws in proportion to, over all items."""
        raise NotImplementedError


class OrderedSelector(Selector):
    """Has an order."""

    def first(self, n: int) -> Ints:
        """The keys of the first `n` items; of all if there are fewer."""
        raise NotImplementedError


class SelectorSettings(Protocol):
    @property
    def uses_priorities(self) -> bool: ...

    def make(self, items: Items) -> Selector: ...


# --- at random


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Every item is as likely as any other."""

    @property
    def uses_priorities(self) -> bool:
        return False

    def make(self, items: Items) -> Selector:
        return _Uniform(items)


class _Uniform(RandomSelector):
    def __init__(self, items: Items) -> None:
        self._items = items
        self._live: Ints | None = None  # all keys; None: something has changed since

    def add(self, keys: Ints, slots: Ints) -> None:
        self._live = None

    def remove(self, keys: Ints, slots: Ints) -> None:
        self._live = None

    def rebuild(self, saved: Any = None) -> None:
        self._live = None

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        items = self._items
        size, high = items.size, items.high
        if size == high:
            keys = items.key.take(rng.integers(0, high, n))
        elif n * high < size * (high >> 4) or 2 * size > high:
            keys = self._reject(n, rng)
        else:  # so few are live that listing them costs less than the draws that would fail
            if self._live is None:
                every = items.key[:high]
                self._live = every[every >= 0]
            keys = self._live.take(rng.integers(0, size, n))
        return keys, np.full(n, 1.0 / size)

    @property
    def mass(self) -> float:
        return float(self._items.size)

    def _reject(self, n: int, rng: np.random.Generator) -> Ints:
        """Slots at random, without the empty ones: what is left is uniform over the items."""
        items = self._items
        found: list[Ints] = []
        lacking = n
        while lacking > 0:
            num = int(lacking * 1.1 * items.high / items.size) + 16
            keys = items.key.take(rng.integers(0, items.high, num))
            keys = keys[keys >= 0][:lacking]
            found.append(keys)
            lacking -= len(keys)
        return found[0] if len(found) == 1 else np.concatenate(found)


@dataclass(frozen=True, kw_only=True)
class Prioritised:
    """An item is drawn in proportion to `priority ** exponent`; one of priority 0 never is.

    https://arxiv.org/abs/1511.05952. The weight that corrects for it is `(size * probability) ** -beta`.
    """

    exponent: float = option(
        0.6, help="power that priorities are raised to; 0 is uniform over those above 0", minimum=0
    )

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= 3:
            raise ConfigError(f"exponent={self.exponent}: the exponent of priorities is within 0 and 3")

    @property
    def uses_priorities(self) -> bool:
        return True

    def make(self, items: Items) -> Selector:
        return _Prioritised(items, self.exponent)


class _Prioritised(RandomSelector):
    def __init__(self, items: Items, exponent: float) -> None:
        self._items = items
        self._exponent = exponent
        self._sums = PrioritySums(len(items.key))

    def _weights(self, priorities: Floats) -> Floats:
        if self._exponent == 1:
            return priorities
        if self._exponent == 0:
            return np.sign(priorities)
        return np.power(priorities, self._exponent)

    def add(self, keys: Ints, slots: Ints) -> None:
        assert self._items.priority is not None
        self._sums.set(slots, self._weights(self._items.priority.take(slots)))

    update = add

    def remove(self, keys: Ints, slots: Ints) -> None:
        self._sums.set(slots, 0.0)

    @property
    def can_draw(self) -> bool:
        return self._sums.total > 0

    @property
    def mass(self) -> float:
        return self._sums.total

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        slots, probabilities = self._sums.draw(n, rng)
        return self._items.key.take(slots), probabilities

    def save(self) -> Any:
        return self._sums.weights(slice(0, self._items.high)).copy()

    def rebuild(self, saved: Any = None) -> None:
        assert self._items.priority is not None
        weights = np.zeros(len(self._items.key))
        if saved is None:
            live = np.flatnonzero(self._items.key >= 0)
            weights[live] = self._weights(self._items.priority[live])
        else:  # powers may differ in the last bit with where a number is in its array
            weights[: len(saved)] = saved
        self._sums.set_all(weights)


# --- in order


@dataclass(frozen=True, kw_only=True)
class Fifo:
    """The oldest first."""

    @property
    def uses_priorities(self) -> bool:
        return False

    def make(self, items: Items) -> Selector:
        return _ByAge(items, newest_first=False)


@dataclass(frozen=True, kw_only=True)
class Lifo:
    """The newest first."""

    @property
    def uses_priorities(self) -> bool:
        return False

    def make(self, items: Items) -> Selector:
        return _ByAge(items, newest_first=True)


class _ByAge(OrderedSelector):
    """Keys in ascending order, with those of removed items until there are too many of them."""

    def __init__(self, items: Items, *, newest_first: bool) -> None:
        self._items = items
        self._newest_first = newest_first
        self._keys: Ints = np.empty(64, np.int64)
        self._head = self._tail = 0

    def add(self, keys: Ints, slots: Ints) -> None:
        n, tail = len(keys), self._tail
        is_later = self._head == tail or keys[0] > self._keys[tail - 1]
        if not is_later or (n > 1 and not (keys[1:] > keys[:-1]).all()):
            # Rows finish their items at different times: the new keys go among the last ones. A key that was removed
            # and comes back is there already.
            start = self._head + int(self._keys[self._head : tail].searchsorted(keys.min()))
            keys = np.unique(np.concatenate((self._keys[start:tail], keys)))
            n, tail = len(keys), start
        if tail + n > len(self._keys):
            self._make_room(tail, n)
            tail = self._tail
        self._keys[tail : tail + n] = keys
        self._tail = tail + n

    def _make_room(self, tail: int, n: int) -> None:
        kept = self._keys[self._head : tail]
        kept = kept[self._items.live(kept)]
        self._keys = np.empty(max(64, 2 * (len(kept) + n)), np.int64)
        self._keys[: len(kept)] = kept
        self._head, self._tail = 0, len(kept)

    def first(self, n: int) -> Ints:
        self._strip()
        keys = self._end(n)
        if not self._items.live(keys).all():  # removed out of order: rare, so all are looked at
            self._make_room(self._tail, 0)
            keys = self._end(n)
        return keys.copy()

    def _end(self, n: int) -> Ints:
        if self._newest_first:
            return self._keys[max(self._head, self._tail - n) : self._tail][::-1]
        return self._keys[self._head : min(self._tail, self._head + n)]

    def _strip(self) -> None:
        """Forget the removed ones at the end that is read from."""
        while self._head < self._tail:
            live = self._items.live(self._end(256))
            is_there = bool(live.any())
            self._advance(int(live.argmax()) if is_there else len(live))
            if is_there:
                return

    def _advance(self, num: int) -> None:
        if self._newest_first:
            self._tail -= num
        else:
            self._head += num

    def rebuild(self, saved: Any = None) -> None:
        live = np.sort(self._items.key[self._items.key >= 0])
        self._keys = np.empty(max(64, 2 * len(live)), np.int64)
        self._keys[: len(live)] = live
        self._head, self._tail = 0, len(live)


@dataclass(frozen=True, kw_only=True)
class MinHeap:
    """The smallest priority first."""

    @property
    def uses_priorities(self) -> bool:
        return True

    def make(self, items: Items) -> Selector:
        return _ByPriority(items, sign=1.0)


@dataclass(frozen=True, kw_only=True)
class MaxHeap:
    """The largest priority first."""

    @property
    def uses_priorities(self) -> bool:
        return True

    def make(self, items: Items) -> Selector:
        return _ByPriority(items, sign=-1.0)


class _ByPriority(OrderedSelector):
    """A heap of (priority, key); entries of removed items and of old priorities go when they come to the top."""

    def __init__(self, items: Items, *, sign: float) -> None:
        self._items = items
        self._sign = sign
        self._heap: list[tuple[float, int]] = []

    def add(self, keys: Ints, slots: Ints) -> None:
        assert self._items.priority is not None
        if len(self._heap) + len(keys) > 2 * self._items.size + 64:
            self.rebuild()
            return
        signed = self._items.priority.take(slots) * self._sign
        for entry in zip(signed.tolist(), keys.tolist(), strict=True):
            heapq.heappush(self._heap, entry)

    update = add

    def first(self, n: int) -> Ints:
        assert self._items.priority is not None
        key, priority, num_slots = self._items.key, self._items.priority, len(self._items.key)
        found: list[tuple[float, int]] = []
        while self._heap and len(found) < n:
            entry = heapq.heappop(self._heap)
            slot = entry[1] % num_slots
            is_live = key[slot] == entry[1] and priority[slot] * self._sign == entry[0]
            if is_live and (not found or found[-1] != entry):  # a priority that was set twice is there twice
                found.append(entry)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return np.array([entry[1] for entry in found], np.int64)

    def rebuild(self, saved: Any = None) -> None:
        assert self._items.priority is not None
        slots = np.flatnonzero(self._items.key >= 0)
        signed = self._items.priority[slots] * self._sign
        self._heap = list(zip(signed.tolist(), self._items.key[slots].tolist(), strict=True))
        heapq.heapify(self._heap)
