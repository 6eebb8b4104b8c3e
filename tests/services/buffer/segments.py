"""Segments that can be distinguished, and programs that push and take them; imported by worker processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ludus.data import nest as nests
from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.services.buffer.client import BufferProducer
from ludus.services.buffer.service import BufferService
from ludus.workers.register import register
from ludus.workers.remote import Remote
from ludus.workers.worker import Worker


def make(value: float = 0.0, *, num_rows: int = 2, obs_size: int = 3) -> Segment:
    segment = Segment.allocate(4, num_rows, obs=ArraySpec((obs_size,), np.float32), action=Discrete(2))
    fill(segment, value)
    return segment


def fill(segment: Segment, value: float) -> None:
    segment.obs[...] = value
    segment.reward[...] = value


def value_of(segment: Segment) -> float:
    """What it was filled with. A torn one has none."""
    values = {float(v) for leaf in (segment.obs, segment.reward) for v in np.unique(leaf)}
    assert len(values) == 1, f"a torn segment: {values}"
    return values.pop()


def wait_until(is_so: Callable[[], Any], timeout_s: float = 20.0) -> None:
    until = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.005)


class Player:
    """Pushes large segments, filled with 0, 1, 2, …, out of a few that it writes to again and again."""

    def __init__(self, buffer: Remote, *, num_segments: int, obs_size: int = 20_000) -> None:
        self.producer = BufferProducer(buffer, producer="player")
        self.free = [make(obs_size=obs_size) for _ in range(self.producer.num_segments)]
        self.num_segments = num_segments

    def run(self) -> None:
        for value in range(self.num_segments):
            segment = self.free.pop()
            fill(segment, float(value))
            self.free += self.producer.push(segment)
        self.free += self.producer.flush()
        assert len(self.free) == self.producer.num_segments


class Learner(Worker):
    """Owns its buffer: pushes are answered and segments are taken in one thread."""

    idle_s = 0.002

    def __init__(self, server: Any, *, capacity: int, batch: int) -> None:
        super().__init__(server)
        self.buffer = BufferService(capacity)
        self.batch = batch
        self.log: list[tuple[str, float]] = []
        self.max_size = 0
        server.register_service(self.buffer)
        server.register_service(self)

    def _poll(self) -> int:
        self.max_size = max(self.max_size, len(self.buffer.buffer))
        items = self.buffer.buffer.take(self.batch)
        if items:
            joined = Segment.concat([item.segment for item in items])
            assert joined.num_rows == sum(item.segment.num_rows for item in items)
            self.log += [(item.segment_id, value_of(item.segment)) for item in items]
        return len(items)

    @register
    def taken(self) -> list[list[Any]]:
        return [list(entry) for entry in self.log]

    @register
    def most(self) -> int:
        return self.max_size


def same(first: Segment, second: Segment) -> bool:
    pairs = zip(nests.leaves(first.to_nest()), nests.leaves(second.to_nest()), strict=True)
    return all(np.array_equal(a, b) if a is not None else b is None for a, b in pairs)
