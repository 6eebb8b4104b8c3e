"""Replay of flat items whose columns are mapped files: other processes of the host read them while this one writes.

    replay = MappedReplay(spec, TableSettings(), num_slots=100_000, folder=folder)
    replay.insert(batch, insert_id="actor/0-5f2a/17")
    keys, probabilities = replay.draw(256)

    reader = ColumnReader.open(folder, token)               # in another process
    is_there = reader.gather(keys, out)                     # the others were overwritten

One column has the key of each item. It says -1 while an item is written, so a reader that finds the same key before and
after it has read the item has read a whole one.

A folder that persists is opened again by the next process. An insert takes its keys in the table, then its items are
written, and the count of items last: what is not counted did not happen.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import errors, files
from ludus.services.buffer.columns import Columns, ColumnSpec
from ludus.services.buffer.insert_ids import InsertIds
from ludus.services.buffer.table import Drawn, TableSettings

__all__ = ["KEY", "ColumnReader", "MappedReplay"]

KEY = "__key"
_STEP_BYTES = 4096
_SHARED_WORK_BYTES = 1 << 20  # from here on two threads copy
Ints = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


class MappedReplay:
    """Not safe to use from several threads at once. Raises `ConfigError` if the folder has another's items."""

    def __init__(
        self,
        spec: Mapping[str, ColumnSpec],
        settings: TableSettings | None = None,
        *,
        num_slots: int,
        folder: Path,
        persist: bool = False,
        seed: int = 0,
    ) -> None:
        if not spec or KEY in spec:
            raise errors.ConfigError(f"the columns are {list(spec)}: at least one, and none of the name {KEY!r}")
        settings = settings or TableSettings()
        self.folder = folder
        self._columns = self._open(spec, settings, num_slots) if persist else self._make(spec, settings, num_slots)
        self.spec = {name: leaf for name, leaf in self._columns.spec.items() if name != KEY}
        self.token = str(self._columns.extra["token"])
        self._names = list(self.spec)
        self._key: Ints = self._columns.arrays[KEY]
        self._num_items: Ints = self._map("num_items", np.int64, (1,)) if persist else np.zeros(1, np.int64)
        self.table = settings.make(num_slots, storage=self._map_of_table if persist else None)
        self._ids = InsertIds(folder / "inserts" if persist else None, num_items=self.num_items)
        self._rng = np.random.default_rng([seed, self.num_items])
        if persist:
            self._drop_uncommitted()

    @property
    def num_slots(self) -> int:
        return self._columns.num_slots

    @property
    def num_items(self) -> int:
        """Inserted, ever."""
        return int(self._num_items[0])

    # -- files

    def _make(self, spec: Mapping[str, ColumnSpec], settings: TableSettings, num_slots: int) -> Columns:
        extra = {"token": uuid.uuid4().hex, "settings": repr(settings)}
        columns = {**spec, KEY: np.zeros((), np.int64)}
        made = Columns(columns, num_slots, folder=self.folder, extra=extra)
        made.arrays[KEY].fill(-1)
        return made

    def _open(self, spec: Mapping[str, ColumnSpec], settings: TableSettings, num_slots: int) -> Columns:
        if not (self.folder / "columns.json").exists():
            if (self.folder / "num_items.map").exists():  # made after it
                raise errors.DataError(
                    f"{self.folder} has items, and no columns.json that says what they are; nothing "
                    "was opened or changed. Put it back, or use another folder"
                )
            return self._make(spec, settings, num_slots)
        columns = Columns.open(self.folder)
        there = [columns.num_slots, columns.extra["settings"], _spell(columns.spec)]
        wanted = [num_slots, repr(settings), _spell({**spec, KEY: np.zeros((), np.int64)})]
        if there != wanted:
            raise errors.ConfigError(
                f"{self.folder} has items of {there}, not of {wanted}; they were not touched. Use the same settings, "
                "or another folder."
            )
        return columns

    def _map_of_table(self, name: str, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        return self._map(f"table-{name}", dtype, shape)

    def _map(self, name: str, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """Raises `DataError` if it is torn or gone, and there are items."""
        path = self.folder / f"{name}.map"
        num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        found = path.stat().st_size if path.exists() else 0
        if found != num_bytes:
            if self._key.max() >= 0:  # else it was killed while it made the files
                raise errors.DataError(
                    f"{path} is torn: it has {found} bytes of {num_bytes}. Nothing was opened or changed; put it back, "
                    "or use another folder"
                )
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, files.PRIVATE)
            try:
                os.posix_fallocate(fd, 0, num_bytes)
            finally:
                os.close(fd)
        return np.memmap(path, dtype, mode="r+", shape=shape).view(np.ndarray)

    def _drop_uncommitted(self) -> None:
        """Of an insert that the process before did not finish, and what it had started to overwrite."""
        keys = self.table.keys()
        is_whole = (keys < self.num_items) & (self._key.take(keys % self.num_slots) == keys)
        self.table.remove(keys[~is_whole])
        self._key[self._key >= self.num_items] = -1

    # -- items

    def check(self, batch: Mapping[str, NDArray[Any]], priorities: NDArray[Any] | None) -> int:
        """How many rows it has. Raises `DataError` unless it can be inserted."""
        if not isinstance(batch, Mapping) or batch.keys() != self.spec.keys():
            found = list(batch) if isinstance(batch, Mapping) else type(batch).__name__
            raise errors.DataError(f"the columns are {self._names}, not {found}; nothing was inserted")
        num = -1
        for name, leaf in self.spec.items():
            try:
                rows = np.asarray(batch[name])
            except ValueError as error:
                raise errors.DataError(f"{name} is no array ({error}); nothing was inserted") from None
            num = len(rows) if num < 0 and rows.ndim else num
            if rows.shape != (num, *leaf.shape) or not np.can_cast(rows.dtype, leaf.dtype, "same_kind"):
                wanted = ", ".join(map(str, ("rows" if num < 0 else num, *leaf.shape)))
                raise errors.DataError(
                    f"{name} is {rows.dtype}{list(rows.shape)} and should be {leaf.dtype}[{wanted}]; nothing "
                    "was inserted"
                )
        if not 1 <= num <= self.num_slots:
            raise errors.DataError(
                f"cannot insert {num} rows at once into {self.num_slots} slots; nothing was inserted"
            )
        if priorities is not None:
            self.table.check_priorities(priorities, num)
        return num

    def has_inserted(self, insert_id: str) -> bool:
        return insert_id in self._ids

    def insert(
        self, batch: Mapping[str, NDArray[Any]], priorities: NDArray[Any] | None = None, *, insert_id: str = ""
    ) -> Ints:
        """Items of the rows of these arrays, of which `check` says that they can be; their keys.

        Does not ask the limiter, nor whether `insert_id` was inserted before: its owner does.
        """
        num = len(batch[self._names[0]])
        start = self.num_items
        keys = np.arange(start, start + num)
        if insert_id:
            try:
                self._ids.prepare(insert_id, start, num)
            except OSError as error:
                raise errors.DataError(f"{self.folder} cannot be written ({error}); nothing was inserted") from error
        self._columns.write(start, {KEY: np.full(num, -1)})
        self.table.insert(keys, priorities)
        self._columns.write(start, batch)
        self._columns.write(start, {KEY: keys})
        self._num_items[0] = start + num
        if insert_id:
            self._ids.add(insert_id)
        return keys

    def draw(self, n: int) -> Drawn:
        """The keys and probabilities of `n` samples. Does not ask the limiter."""
        return self.table.sample(n, self._rng)

    def gather(self, keys: Ints) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        """Copies of the items, and which of them are there still."""
        slots = keys % self.num_slots
        return self._columns.take(self._names, slots), (self._key.take(slots) == keys) & (keys >= 0)

    def close(self) -> None:
        self._ids.close()


class ColumnReader:
    """The columns of a `MappedReplay` in another process, read-only."""

    def __init__(self, columns: Columns, token: str) -> None:
        self._columns = columns
        self._key: Ints = columns.arrays[KEY]
        self.spec = {name: leaf for name, leaf in columns.spec.items() if name != KEY}
        self._names = list(self.spec)
        self._row_bytes = sum(leaf.dtype.itemsize * int(np.prod(leaf.shape)) for leaf in self.spec.values())
        self.token = token
        # NumPy copies without the interpreter's lock, and one core does not use all of the memory's speed.
        has_cores = len(os.sched_getaffinity(0)) > 1
        self._helper = futures.ThreadPoolExecutor(1, thread_name_prefix="replay-reader") if has_cores else None

    @classmethod
    def open(cls, folder: Path, token: str, *, touch: bool = False) -> ColumnReader | None:
        """None if this host does not have these columns. `touch`: so that no read has page faults later."""
        try:
            columns = Columns.open(folder, readonly=True)
        except (errors.DataError, OSError):
            return None
        if columns.extra.get("token") != token:
            return None
        if touch:
            for array in columns.arrays.values():
                array.reshape(-1).view(np.uint8)[::_STEP_BYTES].max(initial=0)
        return cls(columns, token)

    def gather(self, keys: Ints, out: Arrays) -> NDArray[np.bool_]:
        """Copy the items of these keys to `out`; which of them are whole. The others were overwritten in between."""
        slots = keys % self._columns.num_slots
        is_whole: NDArray[np.bool_] = self._key.take(slots) == keys
        if self._helper is not None and len(slots) * self._row_bytes >= _SHARED_WORK_BYTES:
            half = len(slots) // 2
            later = self._helper.submit(self._copy, slots[half:], {name: out[name][half:] for name in self._names})
            self._copy(slots[:half], {name: out[name][:half] for name in self._names})
            later.result()
        else:
            self._copy(slots, out)
        is_whole &= self._key.take(slots) == keys
        return is_whole

    def _copy(self, slots: Ints, out: Arrays) -> None:
        self._columns.take(self._names, slots, out=out)

    def close(self) -> None:
        """End its thread. Twice is fine."""
        if self._helper is not None:
            self._helper.shutdown()


def _spell(spec: Mapping[str, ColumnSpec]) -> dict[str, str]:
    return {name: f"{np.dtype(leaf.dtype).str}{list(leaf.shape)}" for name, leaf in spec.items()}
