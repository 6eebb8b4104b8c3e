"""cpprb: tables in C++ (Cython), in the caller's process."""

from __future__ import annotations

from typing import Any

import numpy as np
from cpprb import PrioritizedReplayBuffer, ReplayBuffer
from items import CAPACITY, FIELDS, SAMPLED, Batch
from orders import serve_orders


class Cpprb:
    def __init__(self, order: dict[str, Any]) -> None:
        self._names = list(FIELDS[order["size"]])
        fields = {name: {"shape": shape or 1, "dtype": dtype} for name, (shape, dtype) in FIELDS[order["size"]].items()}
        if order["kind"] == "prioritised":
            self._buffer = PrioritizedReplayBuffer(CAPACITY[order["size"]], fields, alpha=0.6)
        else:
            self._buffer = ReplayBuffer(CAPACITY[order["size"]], fields)

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def insert(self, prepared: Batch) -> None:
        self._buffer.add(**prepared)

    def finish_inserts(self) -> None:
        pass

    def sample(self, priorities: np.ndarray | None) -> Any:
        if priorities is None:
            return self._buffer.sample(SAMPLED)
        sample = self._buffer.sample(SAMPLED, beta=0.4)
        self._buffer.update_priorities(sample["indexes"], priorities)
        return sample

    def fields(self, sample: Any) -> Batch:
        return {name: sample[name] for name in self._names}


if __name__ == "__main__":
    serve_orders(Cpprb, "cpprb")
