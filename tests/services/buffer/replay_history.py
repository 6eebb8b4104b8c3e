"""A process that inserts into a mapped store, samples from it, and reports what it did; it is killed at any time.

Entry `k` of the store has the observation `k`. A line is written after the operation that it reports.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.services.buffer.limiters import Queue, SamplesPerInsert
from ludus.services.buffer.selectors import Fifo, Prioritised
from ludus.services.buffer.table import TableSettings
from ludus.services.buffer.trajectories import TrajectoryStore
from ludus.services.buffer.trajectory_spec import TrajectorySpec

NUM_ENTRIES = 3000
NUM_STEPS = 4
MAX_TIMES = 3
RATIO, MIN_SIZE, TOLERANCE = 1.5, 50, 60.0
OBS = ArraySpec((3,), np.float32)


def make(folder: Path) -> TrajectoryStore:
    store = TrajectoryStore(
        TrajectorySpec(obs=OBS, action=ArraySpec((), np.int64)), num_entries=NUM_ENTRIES, folder=folder
    )
    store.add_table("queue", TableSettings(sampler=Fifo(), limiter=Queue(capacity=1000), max_times_sampled=1))
    limiter = SamplesPerInsert(ratio=RATIO, min_size=MIN_SIZE, tolerance=TOLERANCE)
    store.add_table(
        "replay", TableSettings(sampler=Prioritised(), limiter=limiter, max_times_sampled=MAX_TIMES), length=2
    )
    return store


def fill(segment: Segment, start: int) -> None:
    """One row that never ends: it goes on from entry `start`."""
    segment.obs[:, 0] = np.arange(start, start + NUM_STEPS + 1)[:, None] * np.array([1.0, -1.0, 0.5])
    segment.action[:, 0] = np.arange(start, start + NUM_STEPS) % 5
    segment.reward[:, 0] = np.arange(start, start + NUM_STEPS)
    segment.active[...] = True


def report(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main(folder: Path, seed: int) -> None:
    store = TrajectoryStore.open(folder) if folder.exists() else make(folder)
    rng = np.random.default_rng(seed)
    segment = Segment.allocate(NUM_STEPS, 1, obs=OBS, action=Discrete(5))
    report(f"opened {store.num_inserted}")
    queue, replay = store.tables["queue"], store.tables["replay"]
    while True:
        match int(rng.integers(0, 4)):
            case 0 | 1 if store.can_insert(NUM_STEPS):
                fill(segment, store.num_inserted)
                store.insert(segment, f"producer/{seed}")
                report(f"inserted {store.num_inserted}")
            case 2 if queue.can_sample(3):
                batch, keys, _ = store.sample_transitions("queue", 3, rng, gamma=0.5)
                assert (batch.obs[:, 0] == keys).all()
                assert (batch.next_obs[:, 0] == keys + 1).all()
                report(f"taken {' '.join(map(str, keys.tolist()))}")
            case 3 if replay.can_sample(16):
                batch, keys, _ = store.sample_transitions("replay", 16, rng, gamma=0.5)
                assert (batch.obs[:, 0] == keys).all()
                assert (batch.reward == keys + 0.5 * (keys + 1)).all()
                report(f"sampled {' '.join(map(str, keys.tolist()))}")
                replay.update_priorities(keys, rng.random(16))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
