"""The items of a buffer by their keys, as they came or compressed; and which keys later ones get.

A table has a slot for each item, `key % num_slots`, and a later item has a larger key. Items go in any order, so a new
one gets a slot that is free, and the next key of that slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.services.buffer.compression import Compressed, compress, decompress
from ludus.services.buffer.kinds import Kind

__all__ = ["StoredItems"]

Ints = NDArray[np.int64]


class _Stored(NamedTuple):
    content: Any  # an item, or `Compressed`
    segment_id: str
    num_rows: int


class StoredItems:
    """`pack` and `unpack` are between an item and what is kept of it, `send` and `read` between that and a nest."""

    def __init__(self, kind: Kind, *, num_slots: int, compress: bool) -> None:
        self._kind = kind
        self._num_slots = num_slots
        self._compresses = compress
        self._stored: dict[int, _Stored] = {}  # in the order of their keys
        self._free: deque[int] = deque(range(num_slots))
        self._last = -1
        self._is_free_known = True

    # -- items

    def pack(self, item: Any) -> tuple[Any, int]:
        """What is kept, and its rows. Raises `CodecError` if it is to be compressed and cannot be."""
        content = compress(self._kind.send(item)) if self._compresses else item
        return content, self._kind.num_rows(item)

    def unpack(self, content: Any) -> Any:
        return self._kind.read(decompress(content)) if isinstance(content, Compressed) else content

    def send(self, content: Any) -> Nest:
        if isinstance(content, Compressed):
            return {"frames": list(content.frames), "sizes": list(content.sizes)}
        return {"item": self._kind.send(content)}

    def read(self, sent: Nest) -> tuple[Any, int]:
        """The inverse, with its rows."""
        if "item" in sent:
            item = self._kind.read(sent["item"])
            return item, self._kind.num_rows(item)
        content = Compressed(sent["frames"], sent["sizes"])
        return content, self._kind.num_rows(self.unpack(content))

    # -- keys

    def new_keys(self, num: int) -> Ints:
        """For the next `num` items; there must be as many free slots. They are in use once they are added."""
        self._find_free()
        keys = np.empty(num, np.int64)
        last = self._last
        for index in range(num):
            last += 1
            last += (self._free[index] - last) % self._num_slots
            keys[index] = last
        return keys

    def add(self, keys: Ints, contents: Sequence[tuple[Any, int]], ids: Sequence[str]) -> None:
        self._find_free()
        for key, (content, num_rows), segment_id in zip(keys.tolist(), contents, ids, strict=True):
            slot = key % self._num_slots
            if self._free[0] == slot:
                self._free.popleft()
            elif slot in self._free:
                self._free.remove(slot)
            else:  # the record that made it free is lost in a damaged log
                self._stored = {old: each for old, each in self._stored.items() if old % self._num_slots != slot}
            self._stored[key] = _Stored(content, segment_id, num_rows)
            self._last = key

    def keys(self) -> Ints:
        """All, in ascending order."""
        return np.sort(np.fromiter(self._stored, np.int64, len(self._stored)))

    def remove(self, keys: Ints) -> None:
        self._find_free()
        for key in keys.tolist():
            if self._stored.pop(key, None) is not None:
                self._free.append(key % self._num_slots)

    def get(self, keys: Ints) -> list[tuple[Any, str]]:
        """The items and their ids."""
        found = [self._stored[key] for key in keys.tolist()]
        return [(self.unpack(each.content), each.segment_id) for each in found]

    def num_rows(self) -> Iterator[int]:
        """Of each item, from the oldest on."""
        return (each.num_rows for each in self._stored.values())

    # -- checkpoints

    def save(self) -> Nest:
        """Nothing is copied."""
        return {"last_key": self._last, "items": [_entry(key, each, self) for key, each in self._stored.items()]}

    def restore(self, saved: Nest) -> None:
        for key, segment_id, sent in saved["items"]:
            content, num_rows = self.read(sent)
            self._stored[key] = _Stored(content, segment_id, num_rows)
        self._last = saved["last_key"]
        self._is_free_known = False

    def snapshot(self) -> Iterator[Nest]:
        """Records that `restore` takes, of the items that are there now, whatever comes and goes from here on."""
        stored, last = dict(self._stored), self._last
        return ({"do": "items", "last_key": last, "items": part} for part in self._parts(stored))

    def _parts(self, stored: dict[int, _Stored]) -> Iterator[list[Nest]]:
        """An empty one at first, so that the last key is known even if nothing is there."""
        yield []
        for key, each in stored.items():
            yield [_entry(key, each, self)]

    def _find_free(self) -> None:
        """After a restore: in the order in which a ring would use them."""
        if self._is_free_known:
            return
        self._is_free_known = True
        used = {key % self._num_slots for key in self._stored}
        slots = ((self._last + 1 + step) % self._num_slots for step in range(self._num_slots))
        self._free = deque(slot for slot in slots if slot not in used)


def _entry(key: int, stored: _Stored, items: StoredItems) -> Nest:
    return [key, stored.segment_id, items.send(stored.content)]
