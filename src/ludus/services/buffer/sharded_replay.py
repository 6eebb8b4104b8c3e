"""Several replay services as one: inserts are spread over them, samples come from each in proportion to what it has.

replay = ShardedReplayClient([ReplayClient(remote.replica(0)), ReplayClient(remote.replica(1))])
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.services.buffer.output_buffers import OutputBuffers
from ludus.services.buffer.replay_client import Arrays, Floats, Ints, ReplayClient

__all__ = ["ShardedReplayClient"]

_LOOK_AGAIN_S = 0.01


class ShardedReplayClient:
    """The interface of `ReplayClient`. A key says which shard it is of: `key % number of shards`.

    Each draw is of a shard by its share of all items (of all weights, if draws are prioritised), as far as the last
    answers of the shards say, and then of an item within it.
    """

    def __init__(self, shards: Sequence[ReplayClient], *, seed: int = 0, num_buffers: int = 2, timeout_s: float = 60.0):
        if not shards:
            raise errors.ConfigError("a sharded replay has at least 1 shard")
        self._shards = list(shards)
        self._rng = np.random.default_rng(seed)
        self._turn = 0
        self._num_buffers = num_buffers
        self._timeout_s = timeout_s
        self._out: OutputBuffers | None = None

    def insert(self, batch: Arrays, priorities: Any = None, *, stream: int | None = None) -> None:
        """Into the next shard in turn; rows of one `stream` all into the same."""
        if stream is None:
            stream = self._turn
            self._turn += 1
        self._shards[stream % len(self._shards)].insert(batch, priorities)

    def flush(self) -> None:
        for shard in self._shards:
            shard.flush()

    def sample(self, n: int, timeout_s: float | None = None) -> tuple[dict[str, NDArray[Any]], Ints, Floats]:
        """As `ReplayClient.sample`. The rows of a shard are next to each other."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        until = time.monotonic() + limit_s
        shares = self._shares(until, limit_s)
        if self._out is None:
            self._out = OutputBuffers(self._shards[0].spec, self._num_buffers)
        out = self._out.next(n)
        keys, probabilities = np.empty(n, np.int64), np.empty(n)
        start = 0
        for number, num in enumerate(self._rng.multinomial(n, shares).tolist()):
            if num:
                part = slice(start, start + num)
                rows = {name: array[part] for name, array in out.items()}
                drawn, probability = self._shards[number].sample_into(rows, num, until)
                keys[part] = drawn * len(self._shards) + number
                probabilities[part] = probability * shares[number]
                start += num
        return out, keys, probabilities

    def _shares(self, until: float, limit_s: float) -> Floats:
        masses = np.array([shard.mass for shard in self._shards])
        while not masses.all():  # one that had nothing may have something now
            stats = [shard.statistics() for shard in self._shards]
            masses = np.array([shard.mass for shard in self._shards])
            if masses.sum() > 0:
                break
            if time.monotonic() >= until:
                raise errors.DeadlineExceeded(f"nothing could be sampled in {limit_s:g} s: {stats[0]['sampling']}")
            time.sleep(_LOOK_AGAIN_S)
        shares: Floats = masses / masses.sum()
        return shares

    def update_priorities(self, keys: Any, priorities: Any) -> None:
        keys, priorities = np.asarray(keys, np.int64), np.asarray(priorities, np.float64)
        owners = keys % len(self._shards)
        for number, shard in enumerate(self._shards):
            mine = owners == number
            if mine.any():
                shard.update_priorities(keys[mine] // len(self._shards), priorities[mine])

    def statistics(self) -> dict[str, Any]:
        """Sums over the shards; `shards` has those of each."""
        each = [shard.statistics() for shard in self._shards]
        sums = {name: sum(stats[name] for stats in each) for name in each[0] if name not in ("inserting", "sampling")}
        reasons = {name: next(filter(None, (stats[name] for stats in each)), "") for name in ("inserting", "sampling")}
        return {**sums, **reasons, "shards": each}

    def close(self) -> None:
        for shard in self._shards:
            shard.close()
