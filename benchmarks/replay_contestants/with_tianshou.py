"""Tianshou: a buffer for 64 environments, in the caller's process; one insert is one step of each."""

from __future__ import annotations

from typing import Any

import numpy as np
from items import CAPACITY, FIELDS, INSERTED, SAMPLED
from items import Batch as Items
from orders import serve_orders
from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer

NAMES = {"obs": "obs", "next_obs": "obs_next", "action": "act", "reward": "rew", "done": "terminated"}


class Tianshou:
    """`sample` would fetch a next observation from the next step of each item; of the items of 28 KB, which have none,
    only the fields that they have are fetched, by the indices that the buffer draws."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._names = {name: NAMES[name] for name in FIELDS[order["size"]]}
        self._has_next = "next_obs" in self._names
        capacity, options = CAPACITY[order["size"]], {"ignore_obs_next": not self._has_next}
        if order["kind"] == "prioritised":
            self._buffer = PrioritizedVectorReplayBuffer(capacity, INSERTED, alpha=0.6, beta=0.4, **options)
        else:
            self._buffer = VectorReplayBuffer(capacity, INSERTED, **options)

    def prepare(self, batch: Items) -> Batch:
        """`rew` is float64 and `done` is two flags in this library."""
        fields = {theirs: batch[ours] for ours, theirs in self._names.items()}
        fields["rew"] = fields["rew"].astype(np.float64)
        fields.setdefault("obs_next", fields["obs"])
        return Batch(**fields, truncated=np.zeros(INSERTED, bool), info=Batch())

    def insert(self, prepared: Batch) -> None:
        self._buffer.add(prepared)

    def finish_inserts(self) -> None:
        pass

    def sample(self, priorities: np.ndarray | None) -> Any:
        if self._has_next:
            sample, indices = self._buffer.sample(SAMPLED)
        else:
            indices = self._buffer.sample_indices(SAMPLED)
            sample = Batch({theirs: self._buffer.get(indices, theirs) for theirs in self._names.values()})
            if priorities is not None:
                sample.weight = self._buffer.get_weight(indices)
        if priorities is not None:
            self._buffer.update_weight(indices, priorities)
        return sample

    def fields(self, sample: Any) -> Items:
        return {ours: np.asarray(sample[theirs]) for ours, theirs in self._names.items()}


if __name__ == "__main__":
    serve_orders(Tianshou, "tianshou", "torch")
