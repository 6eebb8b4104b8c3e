"""What is stored and drawn, the same for every contestant: items of 45 bytes and of 28 KB, which can be checked."""

from __future__ import annotations

import numpy as np

Batch = dict[str, np.ndarray]

INSERTED = 64  # items of one insert
SAMPLED = 256  # items of one sample
NUM_BATCHES = 4  # different ones, inserted in turns

# By size: the shape and the type of each field.
FIELDS: dict[str, dict[str, tuple[tuple[int, ...], type]]] = {
    "small": {
        "obs": ((4,), np.float32),
        "next_obs": ((4,), np.float32),
        "action": ((), np.int64),
        "reward": ((), np.float32),
        "done": ((), np.bool_),
    },
    "28KB": {
        "obs": ((84, 84, 4), np.uint8),
        "action": ((), np.int64),
        "reward": ((), np.float32),
        "done": ((), np.bool_),
    },
}
CAPACITY = {"small": 102_400, "28KB": 20_480}  # multiples of INSERTED, as Tianshou wants


def make_batches(size: str) -> list[Batch]:
    """Random items, which do not compress. The action is the number of an item; the other fields follow from it."""
    rng = np.random.default_rng(1)
    return [_batch(size, number * INSERTED + np.arange(INSERTED), rng) for number in range(NUM_BATCHES)]


def check(batch: Batch, size: str) -> None:
    """Raises when a sample has other fields, another length, or fields of different items in one place."""
    fields = FIELDS[size]
    if batch.keys() != fields.keys():
        raise AssertionError(f"the sample has fields {sorted(batch)}, not {sorted(fields)}")
    flat = {name: np.asarray(array).reshape(SAMPLED, -1) for name, array in batch.items()}
    action = flat["action"][:, 0]
    for name, expected in _marks(size, action).items():
        if flat[name].shape[1] != max(1, int(np.prod(fields[name][0]))):
            raise AssertionError(f"{name} has the shape {np.shape(batch[name])}")
        if not np.array_equal(flat[name][:, 0], expected):
            raise AssertionError(f"{name} is not that of the item which was inserted")


def _batch(size: str, action: np.ndarray, rng: np.random.Generator) -> Batch:
    batch: Batch = {"action": action}
    for name, (shape, dtype) in FIELDS[size].items():
        if name == "action":
            continue
        if dtype is np.uint8:
            array = rng.integers(0, 256, (INSERTED, *shape), dtype=np.uint8)
        else:
            array = rng.standard_normal((INSERTED, *shape)).astype(dtype)
        array.reshape(INSERTED, -1)[:, 0] = _marks(size, action)[name]
        batch[name] = array
    return {name: batch[name] for name in FIELDS[size]}


def _marks(size: str, action: np.ndarray) -> Batch:
    """The first element of each field."""
    marks = {
        "obs": action % 251,
        "next_obs": action % 241,
        "action": action,
        "reward": action.astype(np.float32) / 2,
        "done": action % 7 == 0,
    }
    return {name: marks[name] for name in FIELDS[size]}
