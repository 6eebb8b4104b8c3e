"""How many may be inserted and sampled one after another; draws of an earlier process; the mass of all draws."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.services.buffer.limiters import Limiter, MinSize, Queue, SamplesPerInsert
from ludus.services.buffer.selectors import Fifo, Prioritised, Uniform
from ludus.services.buffer.table import Table

RNG = np.random.default_rng(0)


def keys(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def one_by_one(table: Table, most: int) -> tuple[int, int]:
    """How many inserts a table takes, and then how many samples, each asked for by itself."""
    num_inserted = 0
    while num_inserted < most and table.can_insert(1):
        table.insert(keys(table.statistics().num_inserted))
        num_inserted += 1
    num_sampled = 0
    while num_sampled < most and table.can_sample(1):
        table.sample(1, RNG)
        num_sampled += 1
    return num_inserted, num_sampled


LIMITERS = [
    MinSize(min_size=3),
    Queue(capacity=8),
    SamplesPerInsert(ratio=2.0, min_size=3, tolerance=4.0),
    SamplesPerInsert(ratio=0.5, min_size=1, tolerance=1.0),
]


@pytest.mark.parametrize(
    ("limiter", "times"),
    [(limiter, times) for limiter in LIMITERS for times in (0, 1) if times or limiter != LIMITERS[1]],
)
def test_as_many_are_allowed_at_once_as_one_after_another(limiter: Limiter, times: int) -> None:
    table = Table(num_slots=64, sampler=Fifo(), limiter=limiter, max_times_sampled=times)
    for _ in range(5):
        num_insertable = table.num_insertable(8)
        before = table.save()
        num_inserted, num_sampled = one_by_one(table, 8)
        assert num_insertable == num_inserted
        table.restore(before)
        for _number in range(num_inserted):
            table.insert(keys(table.statistics().num_inserted))
        assert table.num_samplable(8) == num_sampled
        for _number in range(num_sampled):
            table.sample(1, RNG)


def test_draws_of_an_earlier_process_are_counted_as_its_own() -> None:
    table = Table(num_slots=8, sampler=Uniform(), max_times_sampled=2)
    table.insert(keys(0, 1, 2))
    table.count_samples(keys(0, 0, 1, 7, 0))
    assert table.keys().tolist() == [1, 2]
    stats = table.statistics()
    assert (stats.num_sampled, stats.num_exhausted) == (3, 1)
    assert table.num_samplable(9) == 3


def test_mass_is_what_draws_are_in_proportion_to() -> None:
    table = Table(num_slots=8, sampler=Prioritised(exponent=1.0))
    assert table.mass == 0
    table.insert(keys(0, 1), np.array([2.0, 3.0]))
    assert table.mass == 5.0
    uniform = Table(num_slots=8)
    uniform.insert(keys(0, 1, 2))
    assert uniform.mass == 3.0
