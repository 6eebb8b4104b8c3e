from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ludus.data import codec
from ludus.errors import ConfigError, DataError
from ludus.services.buffer.limiters import Queue, SamplesPerInsert
from ludus.services.buffer.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritised, Uniform
from ludus.services.buffer.table import Table, TableSettings

SELECTORS = [Uniform(), Prioritised(exponent=0.7), Fifo(), Lifo(), MinHeap(), MaxHeap()]


@pytest.mark.parametrize("sampler", [Uniform(), Prioritised(exponent=1.0)])
@pytest.mark.parametrize("max_times", [1, 3])
def test_no_item_is_sampled_more_often_than_it_may_be_not_even_within_a_call(sampler: Any, max_times: int) -> None:
    table = Table(num_slots=50, sampler=sampler, max_times_sampled=max_times)
    rng = np.random.default_rng(0)
    table.insert(np.arange(20), rng.random(20) + 0.01)
    assert table.can_sample(20 * max_times)
    assert not table.can_sample(20 * max_times + 1)
    keys = np.concatenate([table.sample(n, rng).keys for n in (5 * max_times, 15 * max_times)])
    assert np.bincount(keys).tolist() == [max_times] * 20
    stats = table.statistics()
    assert (stats.size, stats.num_exhausted, stats.num_sampled) == (0, 20, 20 * max_times)


def test_a_queue_gives_items_in_order_and_each_once() -> None:
    table = Table(num_slots=8, sampler=Fifo(), limiter=Queue(capacity=4), max_times_sampled=1)
    rng = np.random.default_rng(0)
    table.insert(np.arange(4))
    assert not table.can_insert(1)
    assert table.statistics().inserting == "inserting waits for samples: the queue is full with 4 items"
    assert table.sample(3, rng).keys.tolist() == [0, 1, 2]
    assert table.can_insert(3)
    table.insert(np.array([4, 5, 6]))
    assert table.sample(4, rng).keys.tolist() == [3, 4, 5, 6]
    assert table.statistics().sampling == "sampling waits for inserts: the queue is empty"


def test_new_items_get_the_largest_priority_there_ever_was() -> None:
    table = Table(num_slots=10, sampler=Prioritised(exponent=1.0))
    table.insert(np.array([0]), np.array([4.0]))
    table.update_priorities(np.array([0]), np.array([0.5]))
    table.insert(np.array([1]))
    assert table.priorities(np.array([0, 1])).tolist() == [0.5, 4.0]


def test_updates_of_items_that_are_gone_are_ignored_and_counted_out() -> None:
    table = Table(num_slots=4, sampler=Prioritised(exponent=1.0))
    table.insert(np.arange(4))
    table.insert(np.array([4]))  # in the slot of 0
    assert table.update_priorities(np.array([0, 1, 9, -1]), np.full(4, 7.0)) == 1
    assert table.priorities(np.array([4, 1])).tolist() == [1.0, 7.0]


@pytest.mark.parametrize("priority", [-1.0, float("nan"), float("inf"), 1e31])
def test_a_priority_that_is_no_weight_is_refused_and_nothing_changes(priority: float) -> None:
    table = Table(num_slots=4, sampler=Prioritised())
    table.insert(np.array([0]))
    with pytest.raises(DataError, match="nothing was changed"):
        table.update_priorities(np.array([0]), np.array([priority]))
    with pytest.raises(DataError, match="nothing was changed"):
        table.insert(np.array([1]), np.array([priority]))
    with pytest.raises(DataError, match="nothing was changed"):
        table.update_priorities(np.array([0]), np.array([1.0, 2.0]))
    assert table.keys().tolist() == [0]
    assert table.max_priority == 1.0


def test_sampling_what_is_not_there_says_what_is_missing() -> None:
    table = Table(num_slots=4, sampler=Prioritised())
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="the table is empty"):
        table.sample(1, rng)
    table.insert(np.arange(2), np.zeros(2))
    assert not table.can_sample(1)
    with pytest.raises(DataError, match="all are 0"):
        table.sample(1, rng)
    assert table.statistics().sampling == "sampling waits for priorities: all are 0"


@pytest.mark.parametrize(
    "kwargs", [{"num_slots": 0}, {"num_slots": 4, "capacity": 5}, {"num_slots": 4, "max_times_sampled": -1}]
)
def test_settings_out_of_range_are_refused(kwargs: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Table(**kwargs)


@pytest.mark.parametrize("sampler", SELECTORS)
@pytest.mark.parametrize("remover", SELECTORS)
def test_a_restored_table_goes_on_bit_for_bit(sampler: Any, remover: Any) -> None:
    def make() -> Table:
        limiter = SamplesPerInsert(ratio=1.0, min_size=2, tolerance=100.0)
        settings = TableSettings(capacity=90, sampler=sampler, remover=remover, limiter=limiter, max_times_sampled=9)
        return settings.make(128)

    def step(table: Table, rng: np.random.Generator, key: int) -> list[Any]:
        removed = table.insert(np.arange(key, key + 7), rng.random(7))
        keys, probabilities = table.sample(11, rng)
        num = table.update_priorities(keys, rng.random(11) + 0.01)
        return [sorted(removed.tolist()), keys.tolist(), probabilities.tolist(), num, table.statistics()]

    first, rng = make(), np.random.default_rng(5)
    for key in range(0, 7 * 40, 7):
        step(first, rng, key)
    second = make()
    second.restore(codec.decode([bytes(frame) for frame in codec.encode(first.save())]))
    other = np.random.default_rng(0)
    other.bit_generator.state = rng.bit_generator.state
    for key in range(7 * 40, 7 * 80, 7):
        assert step(first, rng, key) == step(second, other, key)


def test_what_another_table_saved_is_refused() -> None:
    saved = Table(num_slots=8, sampler=Prioritised()).save()
    with pytest.raises(DataError, match="other settings"):
        Table(num_slots=8, sampler=Uniform()).restore(saved)
    with pytest.raises(DataError, match="other settings"):
        Table(num_slots=8, sampler=Prioritised(), max_times_sampled=2).restore(saved)


def test_a_table_goes_on_from_arrays_that_outlived_it() -> None:
    arrays: dict[str, NDArray[Any]] = {}

    def storage(name: str, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        return arrays.setdefault(name, np.zeros(shape, dtype))

    def make() -> Table:
        return Table(num_slots=16, capacity=8, sampler=MaxHeap(), max_times_sampled=2, storage=storage)

    rng = np.random.default_rng(0)
    table = make()
    table.insert(np.arange(12), np.arange(12.0))
    table.sample(3, rng)
    table.remove(np.array([5]))
    again = make()
    assert again.statistics() == table.statistics()
    assert again.keys().tolist() == table.keys().tolist()
    assert again.max_priority == 11.0
    assert again.sample(2, rng).keys.tolist() == [10, 9]  # 11 was sampled twice, 10 once


def test_more_items_than_fit_leave_the_last_ones() -> None:
    table = Table(num_slots=16, capacity=4)
    assert table.insert(np.arange(10)).tolist() == [0, 1, 2, 3, 4, 5]
    assert table.keys().tolist() == [6, 7, 8, 9]
    assert table.statistics().num_evicted == 6


@pytest.mark.parametrize("priorities", [[1e30, 1.0, 1.0, 1.0], [1.0, 1e-150, 1e-150, 1e-150], [0.0, 0.0, 1.0, 1e30]])
def test_a_remover_finds_enough_items_however_far_apart_their_priorities_are(priorities: list[float]) -> None:
    table = Table(num_slots=8, capacity=4, remover=Prioritised(exponent=3.0))
    table.insert(np.arange(4), np.array(priorities))
    removed = table.insert(np.arange(4, 7), np.ones(3))
    assert len(set(removed.tolist())) == 3
    assert int(np.argmax(priorities)) in removed
    assert table.size == 4
    assert len(table.insert(np.arange(8, 12))) == 4


@pytest.mark.parametrize(
    "keys", [[[0], [1]], [[0, 1], [1, 2]], [0.5, 1.5], ["a", "b"], 3, None, [10**30, 1], [[0], [1, 2]]]
)
@pytest.mark.parametrize("sampler", [Prioritised(), MinHeap(), Uniform()])
def test_what_are_no_keys_is_refused_and_changes_nothing(keys: Any, sampler: Any) -> None:
    table = Table(num_slots=8, sampler=sampler)
    table.insert(np.arange(4))
    before = codec.encode(table.save())
    with pytest.raises(DataError, match="keys are integers along one axis"):
        table.update_priorities(keys, np.full(2, 0.5))
    assert [bytes(frame) for frame in codec.encode(table.save())] == [bytes(frame) for frame in before]


@pytest.mark.parametrize("priorities", [["a"], "x", {"a": 1}, [[1.0], [1.0, 2.0]]])
def test_what_are_no_priorities_is_refused(priorities: Any) -> None:
    table = Table(num_slots=8, sampler=Prioritised())
    with pytest.raises(DataError, match="nothing was changed"):
        table.insert(np.arange(1), priorities)
    assert table.size == 0


def test_what_a_table_of_more_slots_saved_is_refused() -> None:
    table = Table(num_slots=8)
    table.insert(np.arange(6, 10))
    other = Table(num_slots=16)
    with pytest.raises(DataError, match="other settings"):
        other.restore(table.save())
    assert other.size == 0


def test_keys_of_a_damaged_file_that_are_not_in_their_slots_are_no_items() -> None:
    arrays: dict[str, NDArray[Any]] = {}

    def storage(name: str, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        return arrays.setdefault(name, np.zeros(shape, dtype))

    Table(num_slots=8, storage=storage).insert(np.arange(4))
    arrays["key"][2:] = 0  # as a file of zeros has them
    table = Table(num_slots=8, storage=storage)
    assert table.keys().tolist() == [0, 1]
    assert table.size == 2
