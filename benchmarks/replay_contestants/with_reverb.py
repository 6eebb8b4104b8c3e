"""dm-reverb: one server process; clients insert with a trajectory writer and draw with a `TrajectoryDataset`.

with_reverb.py server small uniform
with_reverb.py client
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import reverb
import tensorflow as tf
from items import FIELDS, INSERTED, SAMPLED, Batch
from orders import serve_orders, serve_server

TABLE = "table"
NUM_PENDING = 50  # items that a writer may have under way when an insert returns


def start(size: str, kind: str, capacity: int) -> tuple[str, reverb.Server]:
    table = reverb.Table(
        TABLE,
        sampler=reverb.selectors.Prioritized(0.6) if kind == "prioritised" else reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=capacity,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=tuple(tf.TensorSpec(shape, dtype) for shape, dtype in FIELDS[size].values()),
    )
    server = reverb.Server([table], port=None)
    return f"localhost:{server.port}", server


class Reverb:
    """The dataset is made at the first sample, when the table is not empty."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._names = list(FIELDS[order["size"]])
        self._address = order["address"]
        self._client = reverb.Client(self._address)
        self._writer = self._client.trajectory_writer(num_keep_alive_refs=1)
        self._samples: Any = None

    def prepare(self, batch: Batch) -> list[tuple[Any, ...]]:
        return [tuple(batch[name][i] for name in self._names) for i in range(INSERTED)]

    def insert(self, prepared: list[tuple[Any, ...]]) -> None:
        writer = self._writer
        for item in prepared:
            writer.append(item)
            writer.create_item(TABLE, 1.0, tuple(column[-1] for column in writer.history))
        writer.flush(NUM_PENDING)

    def finish_inserts(self) -> None:
        self._writer.flush()

    def sample(self, priorities: np.ndarray | None) -> Any:
        if self._samples is None:
            self._samples = self._make_dataset()
        sample = next(self._samples)
        if priorities is not None:
            updates = dict(zip(sample.info.key.tolist(), priorities.tolist(), strict=True))
            self._client.mutate_priorities(TABLE, updates=updates)
        return sample

    def fields(self, sample: Any) -> Batch:
        return dict(zip(self._names, sample.data, strict=True))

    def _make_dataset(self) -> Any:
        dataset = reverb.TrajectoryDataset.from_table_signature(
            server_address=self._address, table=TABLE, max_in_flight_samples_per_worker=2 * SAMPLED
        )
        return dataset.batch(SAMPLED).as_numpy_iterator()


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve_server(start, "dm-reverb", "tensorflow")
    else:
        serve_orders(Reverb, "dm-reverb", "tensorflow")
