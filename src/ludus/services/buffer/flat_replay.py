"""Replay of flat items: rows of arrays, inserted and sampled by the batch. In one process, without a service.

    spec = {"obs": ArraySpec((4,), np.float32), "action": ArraySpec((), np.int64), ...}
    replay = FlatReplay(spec, TableSettings(sampler=Prioritised()), num_slots=100_000)
    keys = replay.insert({"obs": obs, "action": actions, ...})               # arrays [n, ...]
    batch, keys, probabilities = replay.sample(256)                          # arrays [256, ...]
    replay.update_priorities(keys, abs(errors))

Trajectories are stored once, and their transitions made when they are sampled, by `TrajectoryStore`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.errors import DataError
from ludus.services.buffer.columns import Columns, ColumnSpec
from ludus.services.buffer.output_buffers import OutputBuffers
from ludus.services.buffer.table import TableSettings, TableStats

__all__ = ["FlatReplay"]


class FlatReplay:
    """A ring of `num_slots` items and one table over it. Not safe to use from several threads at once.

    What `sample` returns is written to again by the `num_buffers`-th call after it; 0: never.
    """

    def __init__(
        self,
        spec: Mapping[str, ColumnSpec],
        settings: TableSettings | None = None,
        *,
        num_slots: int,
        seed: int = 0,
        num_buffers: int = 2,
    ) -> None:
        self._columns = Columns(spec, num_slots)
        self._names = list(self._columns.spec)
        self.table = (settings or TableSettings()).make(num_slots)
        self._rng = np.random.default_rng(seed)
        self._num_items = 0
        self._buffers = OutputBuffers(self._columns.spec, num_buffers)

    def __len__(self) -> int:
        return self.table.size

    def insert(self, batch: Mapping[str, NDArray[Any]], priorities: NDArray[Any] | None = None) -> NDArray[np.int64]:
        """Items of the rows of these arrays, with a key each. Raises `DataError` for other columns than the spec's."""
        if batch.keys() != self._columns.spec.keys():
            raise DataError(f"the columns are {self._names}, not {list(batch)}; nothing was inserted")
        num = len(batch[self._names[0]])
        if num > self._columns.num_slots or any(len(rows) != num for rows in batch.values()):
            sizes = {name: len(rows) for name, rows in batch.items()}
            raise DataError(f"cannot insert {sizes} rows into {self._columns.num_slots} slots; nothing was inserted")
        start = self._num_items
        keys = np.arange(start, start + num)
        self.table.insert(keys, priorities)
        self._columns.write(start, batch)
        self._num_items = start + num
        return keys

    def sample(self, n: int) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64], NDArray[np.float64]]:
        """Rows, their keys, and the probability that each had."""
        keys, probabilities = self.table.sample(n, self._rng)
        batch = self._columns.take(self._names, keys % self._columns.num_slots, out=self._buffers.next(len(keys)))
        return batch, keys, probabilities

    def update_priorities(self, keys: NDArray[np.int64], priorities: NDArray[Any]) -> int:
        return self.table.update_priorities(keys, priorities)

    def statistics(self) -> TableStats:
        return self.table.statistics()

    def save(self) -> Nest:
        """For the codec; nothing is shared."""
        num = min(self._num_items, self._columns.num_slots)
        return {
            "num_items": self._num_items,
            "columns": {name: array[:num].copy() for name, array in self._columns.arrays.items()},
            "table": self.table.save(),
            "rng": save_rng(self._rng),
        }

    def restore(self, saved: Nest) -> None:
        """Go on where `save` was called, with the same spec and settings: the next samples are the same."""
        self._columns.expect_own(saved["columns"])
        num = len(saved["columns"][self._names[0]])
        if num != min(int(saved["num_items"]), self._columns.num_slots):
            raise DataError(f"{num} saved items are not those of {self._columns.num_slots} slots; nothing was restored")
        self.table.restore(saved["table"])
        self._num_items = int(saved["num_items"])
        self._columns.write(0, saved["columns"])
        restore_rng(self._rng, saved["rng"])
