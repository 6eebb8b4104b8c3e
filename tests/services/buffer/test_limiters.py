from __future__ import annotations

import numpy as np
import pytest

from ludus.errors import ConfigError
from ludus.services.buffer.limiters import MinSize, Queue, SamplesPerInsert, TableCounts


def counts(size: int = 0, inserted: int = 0, sampled: int = 0) -> TableCounts:
    return TableCounts(size, inserted, sampled)


def test_min_size_holds_samples_back_and_never_inserts() -> None:
    limiter = MinSize(min_size=3)
    assert limiter.can_insert(10**6, counts(2, 2))
    assert not limiter.can_sample(1, counts(2, 2))
    assert limiter.can_sample(100, counts(3, 3))
    assert limiter.why_not_sample(counts(2, 2)) == "sampling waits for inserts: the table has 2 items and needs 3"
    assert limiter.why_not_sample(counts(3, 3)) == ""


@pytest.mark.parametrize("ratio", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_balance_of_samples_and_inserts_stays_within_its_band(ratio: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tolerance = 20 * max(1.0, ratio)
    limiter = SamplesPerInsert(ratio=ratio, min_size=10, tolerance=tolerance)
    inserted = sampled = 0
    num_refused = [0, 0]
    for number in range(3000):
        now = counts(inserted, inserted, sampled)
        n = int(rng.integers(1, 8))
        if rng.random() < (0.95 if number // 300 % 2 else 0.05):  # either side is the faster one for a while
            if limiter.can_insert(n, now):
                inserted += n
            else:
                num_refused[0] += 1
        elif limiter.can_sample(n, now):
            sampled += n
        else:
            num_refused[1] += 1
        balance = inserted * ratio - sampled
        assert balance <= 10 * ratio + tolerance
        if sampled:
            assert balance >= 10 * ratio - tolerance
    assert sampled > 20
    assert min(num_refused) > 0
    assert limiter.can_insert(1, counts(inserted, inserted, sampled)) or limiter.can_sample(
        1, counts(inserted, inserted, sampled)
    )


def test_it_says_who_waits_and_why() -> None:
    limiter = SamplesPerInsert(ratio=2.0, min_size=5, tolerance=10.0)
    assert "the table has 2 items and needs 5" in limiter.why_not_sample(counts(2, 2))
    assert limiter.why_not_insert(counts(10, 10)).startswith("inserting waits for samples: 10 inserts at 2 samples")
    assert limiter.why_not_sample(counts(10, 10, 20)).startswith("sampling waits for inserts: 20 samples are 10 ahead")
    assert limiter.why_not_insert(counts(6, 6, 2)) == limiter.why_not_sample(counts(6, 6, 2)) == ""


def test_what_could_never_be_allowed_is_an_error_and_not_a_wait() -> None:
    limiter = SamplesPerInsert(ratio=2.0, min_size=5, tolerance=10.0)
    with pytest.raises(ConfigError, match=r"21 samples at once .* Raise tolerance to 21"):
        limiter.can_sample(21, counts(100, 100))
    with pytest.raises(ConfigError, match=r"11 inserts at once .* Raise tolerance to 22"):
        limiter.can_insert(11, counts(100, 100))
    with pytest.raises(ConfigError, match="wait for each other"):
        SamplesPerInsert(ratio=8.0, min_size=1, tolerance=4.0)
    with pytest.raises(ConfigError, match="never fit a queue of 4"):
        Queue(capacity=4).can_insert(5, counts())


def test_a_queue_waits_when_it_is_full_and_when_it_is_empty() -> None:
    queue = Queue(capacity=2)
    assert queue.can_insert(2, counts())
    assert not queue.can_insert(2, counts(1))
    assert not queue.can_sample(2, counts(1))
    assert queue.why_not_insert(counts(2)) == "inserting waits for samples: the queue is full with 2 items"
    assert queue.why_not_sample(counts(0)) == "sampling waits for inserts: the queue is empty"


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError):
        MinSize(min_size=0)
    with pytest.raises(ConfigError):
        Queue(capacity=0)
    with pytest.raises(ConfigError):
        SamplesPerInsert(ratio=0.0)
