"""What workers count becomes metrics: sums over restarts, rates, quantiles; nothing while nothing happens."""

from __future__ import annotations

import bisect

import numpy as np
import pytest

from ludus.telemetry.counts import BUCKETS_S, Counted, Counts, quantile


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def counts(calls: int, *, waiting: int = 0, busy_s: float = 0.0, bytes_in: int = 0) -> Counts:
    return Counts(
        totals={"calls": calls, "bytes_in": bytes_in},
        levels={"waiting": waiting},
        parts={"busy_s": busy_s},
        rates={"calls_per_second": "calls"},
        shares={"busy": "busy_s"},
        quiet=frozenset({"bytes_in"}),
    )


def test_totals_and_levels_are_sums_and_rates_are_of_the_time_since(clock: Clock) -> None:
    counted = Counted("model/policy", since=clock.now, clock=clock)
    for calls, seconds in ((10, 5.0), (40, 10.0)):
        clock.now += seconds
        counted.take("a", counts(calls, waiting=1, busy_s=calls / 20))
        counted.take("b", counts(2 * calls, waiting=2, busy_s=calls / 20))
        news = counted.news()
    assert news == {
        "model/policy/calls": 120.0,
        "model/policy/bytes_in": 0.0,
        "model/policy/waiting": 3.0,
        "model/policy/calls_per_second": 9.0,
        "model/policy/busy": 0.15,
    }


def test_a_worker_that_was_restarted_loses_none_of_its_counts(clock: Clock) -> None:
    counted = Counted("gateway", since=clock.now, clock=clock)
    for incarnation, calls in ((1, 10), (2, 3), (2, 5), (3, 50)):
        clock.now += 1.0
        counted.take("a", counts(calls), incarnation=incarnation)
        news = counted.news()
    assert news["gateway/calls"] == 10 + 5 + 50
    assert news["gateway/calls_per_second"] == 50.0


def test_idle_services_are_no_news(clock: Clock) -> None:
    counted = Counted("gateway", since=clock.now, clock=clock)
    seen = []
    for second in range(100):
        clock.now += 10.0
        counted.take("a", counts(7, bytes_in=second))
        seen.append(counted.news())
    assert seen[0]["gateway/calls_per_second"] == 0.7
    assert seen[1]["gateway/calls_per_second"] == 0.0, "so that a curve comes down"
    assert seen[2:] == [{}] * 98, "what only changes because somebody looks is no reason to write"


def test_who_does_not_answer_is_accounted_for_later(clock: Clock) -> None:
    counted = Counted("gateway", since=clock.now, clock=clock)
    clock.now += 10.0
    assert counted.news() == {}
    clock.now += 10.0
    counted.take("a", counts(40))
    assert counted.news()["gateway/calls_per_second"] == 2.0


def test_quantiles_of_durations_are_those_of_the_time_since(clock: Clock) -> None:
    rng = np.random.default_rng(0)
    counted = Counted("gateway", since=clock.now, clock=clock)
    buckets = [0] * (len(BUCKETS_S) + 1)
    for scale in (10.0, 0.01):
        values = rng.exponential(scale, 20_000)
        for value in values:
            buckets[bisect.bisect_left(BUCKETS_S, value)] += 1
        clock.now += 10.0
        counted.take("a", Counts(durations={"step_s": buckets}))
        news = counted.news()
    for name, percent in (("p50", 50), ("p95", 95), ("p99", 99)):
        assert news[f"gateway/step_s/{name}"] == pytest.approx(np.percentile(values, percent), rel=0.25)


def test_a_quantile_beyond_the_last_bucket_is_its_bound() -> None:
    assert quantile([0] * len(BUCKETS_S) + [5], 0.5) == BUCKETS_S[-1]
