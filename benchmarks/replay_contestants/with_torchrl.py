"""TorchRL: TensorDicts in a `LazyTensorStorage`, in the caller's process."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch
from items import CAPACITY, FIELDS, INSERTED, SAMPLED, Batch
from orders import Unavailable, serve_orders
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer, TensorDictReplayBuffer


class TorchRl:
    def __init__(self, order: dict[str, Any]) -> None:
        self._names = list(FIELDS[order["size"]])
        storage = LazyTensorStorage(CAPACITY[order["size"]])
        if order["kind"] == "prioritised":
            require_segment_trees()
            self._buffer = TensorDictPrioritizedReplayBuffer(alpha=0.6, beta=0.4, storage=storage, batch_size=SAMPLED)
        else:
            self._buffer = TensorDictReplayBuffer(storage=storage, batch_size=SAMPLED)

    def prepare(self, batch: Batch) -> TensorDict:
        return TensorDict({name: torch.from_numpy(array) for name, array in batch.items()}, [INSERTED])

    def insert(self, prepared: TensorDict) -> None:
        self._buffer.extend(prepared)

    def finish_inserts(self) -> None:
        pass

    def sample(self, priorities: np.ndarray | None) -> Any:
        sample = self._buffer.sample()
        if priorities is not None:
            sample["td_error"] = torch.from_numpy(priorities)
            self._buffer.update_tensordict_priority(sample)
        return sample

    def fields(self, sample: Any) -> Batch:
        return {name: sample[name].numpy() for name in self._names}


def require_segment_trees() -> None:
    """A wheel of TorchRL is built for one version of torch; beside another one its extension does not load."""
    try:
        importlib.import_module("torchrl._torchrl")
    except ImportError as e:
        raise Unavailable(f"TorchRL's C++ extension does not load beside torch {torch.__version__}: {e}") from e


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve_orders(TorchRl, "torchrl", "tensordict", "torch")
