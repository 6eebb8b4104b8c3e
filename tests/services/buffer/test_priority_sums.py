from __future__ import annotations

import math

import numpy as np
import pytest

from ludus.errors import DataError
from ludus.services.buffer.priority_sums import PrioritySums


@pytest.mark.parametrize("num_slots", [1, 7, 64, 1000, 20_000, 140_000])
def test_frequencies_are_those_of_the_weights(num_slots: int) -> None:
    rng = np.random.default_rng(num_slots)
    sums = PrioritySums(num_slots)
    weights = rng.random(num_slots) ** 4 * (rng.random(num_slots) < 0.7) + 0.0
    weights[0] = 0.1
    sums.set(np.arange(num_slots), weights)
    num = 10**6
    drawn = np.concatenate([sums.draw(50_000, rng)[0] for _ in range(num // 50_000)])
    num_buckets = min(num_slots, 10)
    bucket = np.arange(num_slots) % num_buckets
    expected = np.bincount(bucket, weights, num_buckets) / weights.sum()
    found = np.bincount(bucket[drawn], minlength=num_buckets)
    std = np.sqrt(num * expected * (1 - expected))
    assert (np.abs(found - num * expected) <= 3 * std + 1e-6).all()
    assert (weights[drawn] > 0).all()


def test_probabilities_are_given_with_the_draws() -> None:
    sums = PrioritySums(3000)
    sums.set(np.arange(3000), np.arange(3000.0))
    slots, probabilities = sums.draw(500, np.random.default_rng(1))
    assert probabilities == pytest.approx(slots / np.arange(3000).sum())


def test_a_slot_of_weight_0_is_never_drawn_however_the_numbers_round() -> None:
    rng = np.random.default_rng(2)
    for exponent in range(-300, 30, 15):
        sums = PrioritySums(200)
        weights = np.where(rng.random(200) < 0.5, 0.0, rng.random(200) * 10.0**exponent)
        weights[17] = 1e-310
        sums.set(np.arange(200), weights)
        slots, _ = sums.draw(5000, rng)
        assert (weights[slots] > 0).all()


def test_of_a_slot_that_is_given_twice_the_last_weight_counts() -> None:
    sums = PrioritySums(100)
    sums.set(np.array([5, 5, 9, 5]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert sums.total == 7.0
    assert sums.weights(np.array([5, 9])).tolist() == [4.0, 3.0]


def test_no_error_adds_up_over_many_changes() -> None:
    rng = np.random.default_rng(3)
    sums = PrioritySums(5000)
    weights = np.zeros(5000)
    for _ in range(3000):
        slots = rng.integers(0, 5000, 64)
        values = rng.random(64) * 10.0 ** rng.integers(-12, 12, 64)
        sums.set(slots, values)
        weights[slots] = values
    assert sums.total == pytest.approx(math.fsum(weights), rel=1e-13)
    sums.set(np.arange(5000), 0.0)
    assert sums.total == 0.0
    with pytest.raises(DataError, match="all priorities are 0"):
        sums.draw(1, rng)


def test_sums_that_are_set_at_once_are_the_same_bit_for_bit() -> None:
    rng = np.random.default_rng(4)
    first, second = PrioritySums(150_001), PrioritySums(150_001)
    weights = np.zeros(150_001)
    for _ in range(200):
        slots, values = rng.integers(0, 150_001, 300), rng.random(300)
        first.set(slots, values)
        weights[slots] = values
    second.set_all(weights)
    assert first.total == second.total
    for _ in range(10):
        seed = int(rng.integers(0, 2**32))
        one, two = (sums.draw(256, np.random.default_rng(seed)) for sums in (first, second))
        assert one[0].tolist() == two[0].tolist()
        assert one[1].tolist() == two[1].tolist()
