"""Ludus: a `FlatReplay` in the caller's process; across processes, a service and its clients.

with_ludus.py process             samples go into arrays that are used in turns, as by default
with_ludus.py process-fresh       samples go into new arrays, as those of its peers do
with_ludus.py server small uniform
with_ludus.py client
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from items import CAPACITY, FIELDS, SAMPLED, Batch
from orders import serve_orders, serve_server

EXPONENT = 0.6  # of priorities, as in all contestants


# ---- What Ludus is called here: only these three functions know its names. ------------------------------------------
def make_table(size: str, kind: str, num_slots: int, *, num_buffers: int) -> Any:
    """Has `insert(batch)`, `sample(n) -> (batch, keys, probabilities)` and `update_priorities(keys, priorities)`."""
    from ludus.data.spec import ArraySpec
    from ludus.services.buffer import flat_replay, selectors, table

    sampler = selectors.Prioritised(exponent=EXPONENT) if kind == "prioritised" else selectors.Uniform()
    settings = table.TableSettings(sampler=sampler)
    spec = {name: ArraySpec(shape, np.dtype(dtype)) for name, (shape, dtype) in FIELDS[size].items()}
    return flat_replay.FlatReplay(spec, settings, num_slots=num_slots, num_buffers=num_buffers)


def start_service(size: str, kind: str, num_slots: int) -> tuple[Any, Any]:
    """A table that other processes use: its address (anything that JSON has), and what must stay referenced."""
    raise NotImplementedError("the service of replay tables is not connected to this benchmark")


def connect(address: Any, size: str) -> Any:
    """A client with the three methods of `make_table`; an insert may return before it is acknowledged.

    One that does must have `flush()`, which waits for all acknowledgements.
    """
    raise NotImplementedError("the client of replay tables is not connected to this benchmark")


# ---- The contestant --------------------------------------------------------------------------------------------------
class Ludus:
    def __init__(self, order: dict[str, Any]) -> None:
        if "address" in order:
            self._table = connect(order["address"], order["size"])
        else:
            num_buffers = 0 if sys.argv[1] == "process-fresh" else 2
            self._table = make_table(order["size"], order["kind"], CAPACITY[order["size"]], num_buffers=num_buffers)
        self._flush = getattr(self._table, "flush", None)

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def insert(self, prepared: Batch) -> None:
        self._table.insert(prepared)

    def finish_inserts(self) -> None:
        if self._flush is not None:
            self._flush()

    def sample(self, priorities: np.ndarray | None) -> Any:
        batch, keys, _ = self._table.sample(SAMPLED)
        if priorities is not None:
            self._table.update_priorities(keys, priorities)
        return batch

    def fields(self, sample: Any) -> Batch:
        return dict(sample)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve_server(start_service, "ludus")
    else:
        serve_orders(Ludus, "ludus")
