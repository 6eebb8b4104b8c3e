from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ludus.errors import ConfigError
from ludus.services.buffer.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritised, Uniform
from ludus.services.buffer.table import Table


def drawn_counts(table: Table, num: int, batch: int, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    keys = np.concatenate([table.sample(batch, rng).keys for _ in range(num // batch)])
    return np.bincount(np.searchsorted(table.keys(), keys), minlength=table.size)


@pytest.mark.parametrize("share", [1.0, 0.9, 0.3, 0.02])
@pytest.mark.parametrize("batch", [16, 2000])
def test_uniform_is_uniform_however_few_slots_are_used(share: float, batch: int) -> None:
    rng = np.random.default_rng(1)
    table = Table(num_slots=2000, sampler=Uniform())
    table.insert(np.arange(2000))
    table.remove(np.flatnonzero(rng.random(2000) >= share))
    num = 400_000
    counts = drawn_counts(table, num, batch)
    expected = num / table.size
    chi = float(((counts - expected) ** 2 / expected).sum())
    freedom = table.size - 1
    assert abs(chi - freedom) < 4 * np.sqrt(2 * freedom)


def test_uniform_sees_what_changed_since_the_last_draw() -> None:
    table = Table(num_slots=1000, sampler=Uniform())
    rng = np.random.default_rng(0)
    table.insert(np.arange(900, 903))
    assert set(table.sample(200, rng).keys) == {900, 901, 902}
    table.remove(np.array([901]))
    table.insert(np.array([950]))
    assert set(table.sample(200, rng).keys) == {900, 902, 950}


def test_prioritised_frequencies_follow_the_power_of_the_priorities() -> None:
    table = Table(num_slots=64, sampler=Prioritised(exponent=0.5))
    priorities = np.arange(64.0)
    table.insert(np.arange(64), priorities)
    num = 10**6
    counts = drawn_counts(table, num, 10_000)
    expected = priorities**0.5 / (priorities**0.5).sum()
    std = np.sqrt(num * expected * (1 - expected))
    assert (np.abs(counts - num * expected) <= 3 * std).all()


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [(Fifo(), [3, 5, 8, 9]), (Lifo(), [9, 8, 5, 3]), (MinHeap(), [8, 3, 9, 5]), (MaxHeap(), [5, 3, 9, 8])],
)
def test_samplers_with_an_order_keep_it_through_every_change(sampler: Any, expected: list[int]) -> None:
    table = Table(num_slots=16, sampler=sampler, max_times_sampled=1)
    table.insert(np.array([1, 3, 5]), np.array([9.0, 2.0, 1.0]))
    table.insert(np.array([8, 9]), np.array([5.0, 2.0]))
    table.remove(np.array([1]))
    table.update_priorities(np.array([5, 8]), np.array([7.0, 0.5]))
    rng = np.random.default_rng(0)
    assert table.sample(3, rng).keys.tolist() == expected[:3]
    assert table.sample(1, rng).keys.tolist() == expected[3:]
    assert table.size == 0


def test_without_a_limit_a_sampler_with_an_order_gives_its_first_item_again_and_again() -> None:
    table = Table(num_slots=16, sampler=Fifo())
    table.insert(np.arange(4))
    assert table.sample(5, np.random.default_rng(0)).keys.tolist() == [0] * 5


def test_keys_that_come_late_are_put_in_their_place() -> None:
    table = Table(num_slots=100, sampler=Fifo(), max_times_sampled=1)
    table.insert(np.array([10, 12, 20]))
    table.insert(np.array([15, 11, 30]))
    assert table.sample(6, np.random.default_rng(0)).keys.tolist() == [10, 11, 12, 15, 20, 30]


def test_a_fifo_queue_runs_for_long_without_growing() -> None:
    table = Table(num_slots=128, sampler=Fifo(), max_times_sampled=1)
    rng = np.random.default_rng(0)
    expected = 0
    for start in range(0, 128 * 100, 64):
        table.insert(np.arange(start, start + 64))
        keys = table.sample(64, rng).keys
        assert keys.tolist() == list(range(expected, expected + 64))
        expected += 64
    assert len(table._sampler._keys) < 1000  # type: ignore[attr-defined]


@pytest.mark.parametrize("exponent", [-0.1, 3.5, float("nan")])
def test_an_exponent_out_of_range_is_refused(exponent: float) -> None:
    with pytest.raises(ConfigError, match="exponent"):
        Prioritised(exponent=exponent)
