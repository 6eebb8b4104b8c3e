"""Buffers of nests that are not queues: samplers, removers, rate limiters, priorities, compression."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

from ludus import errors
from ludus.services.buffer.buffer_settings import BufferSettings, settings_of
from ludus.services.buffer.nest_buffer import NestBuffer


def make(**settings: Any) -> NestBuffer:
    return NestBuffer(BufferSettings(**settings), of="nest")


def drawn(buffer: NestBuffer, num: int) -> list[Any]:
    sampled = buffer.sample(num)
    assert sampled is not None
    assert len(sampled.items) == len(sampled.keys) == len(sampled.probabilities) == num
    return sampled.items


@pytest.mark.parametrize(
    ("sampler", "order"),
    [("fifo", "abcd"), ("lifo", "dcba"), ("min_heap", "cadb"), ("max_heap", "bdac")],
)
def test_samplers_with_an_order_give_each_item_once(sampler: str, order: str) -> None:
    buffer = make(sampler=sampler, capacity=4)
    priorities = [2.0, 9.0, 1.0, 3.0] if "heap" in sampler else None
    buffer.push_many(list("abcd"), push_id="p/1", priorities=priorities)
    assert [item.segment for item in buffer.take(3)] == list(order[:3])
    assert drawn(buffer, 1) == [order[3]]
    assert buffer.sample(1) is None
    assert len(buffer) == 0


def test_samplers_at_random_keep_their_items() -> None:
    buffer = make(sampler="uniform", capacity=4)
    buffer.push_many(list("abcd"), push_id="p/1")
    counts = Counter(drawn(buffer, 4000))
    assert all(900 < counts[item] < 1100 for item in "abcd")
    assert len(buffer) == 4


def test_priorities_decide_and_can_be_changed() -> None:
    buffer = make(sampler="prioritised", exponent=1.0, capacity=4)
    buffer.push_many(["a", "b"], push_id="p/1", priorities=[1.0, 3.0])
    sampled = buffer.sample(4000)
    assert sampled is not None
    assert Counter(sampled.items)["b"] / 4000 == pytest.approx(0.75, abs=0.04)
    assert set(sampled.probabilities) == {0.25, 0.75}
    assert buffer.update_priorities([*sampled.keys[:1], 999], [0.0, 1.0]) == 1
    assert len(set(drawn(buffer, 100))) == 1, "the other one"
    buffer.push_many(["c"], push_id="p/2")
    assert "c" in drawn(buffer, 100), "without a priority it has the largest"


def test_priorities_that_cannot_be_are_refused_and_nothing_is_queued() -> None:
    buffer = make(sampler="prioritised", capacity=4)
    for priorities in ([1.0], [1.0, -1.0], [1.0, float("nan")]):
        with pytest.raises(errors.DataError, match="nothing was changed"):
            buffer.push_many(["a", "b"], push_id="p/1", priorities=priorities)
    assert len(buffer) == 0
    with pytest.raises(errors.DataError, match="use no priorities"):
        make(capacity=4).push_many(["a"], push_id="p/1", priorities=[1.0])
    with pytest.raises(errors.DataError, match="use no priorities"):
        make(capacity=4).update_priorities([1], [1.0])


@pytest.mark.parametrize(
    ("remover", "left"), [("fifo", "cdef"), ("lifo", "abcf"), ("min_heap", "bdef"), ("max_heap", "acef")]
)
def test_a_full_one_drops_what_its_remover_chooses(remover: str, left: str) -> None:
    buffer = make(sampler="uniform", remover=remover, capacity=4)
    priorities = {"a": 2.0, "b": 9.0, "c": 1.0, "d": 8.0, "e": 3.0, "f": 4.0} if "heap" in remover else None
    for number, item in enumerate("abcdef"):
        given = None if priorities is None else [priorities[item]]
        assert buffer.push_many([item], push_id=f"p/{number}", priorities=given) == 1
    assert "".join(sorted(set(drawn(buffer, 200)))) == left
    stats = buffer.statistics()
    assert (stats.size, stats.num_pushed, stats.num_evicted, stats.num_dropped) == (4, 6, 2, 0)


def test_a_queue_that_drops_the_oldest_counts_what_nobody_took() -> None:
    buffer = make(capacity=3, when_full="drop_oldest")
    assert buffer.push_many([1, 2, 3, 4, 5], push_id="p/1") == 5
    assert buffer.push_many([6], push_id="p/2") == 1
    assert [item.segment for item in buffer.take(9, at_least=1)] == [4, 5, 6]
    stats = buffer.statistics()
    assert stats.num_pushed == stats.num_taken + stats.num_evicted == 6


def test_long_lived_items_do_not_lose_their_slots_to_new_ones() -> None:
    """The best stays for ever among many that come and go."""
    buffer = make(sampler="max_heap", remover="min_heap", max_times_sampled=0, capacity=3)
    buffer.push_many(["best", "good"], push_id="p/0", priorities=[9.0, 8.0])
    for number in range(1, 50):
        buffer.push_many([number], push_id=f"p/{number}", priorities=[1.0])
    assert drawn(buffer, 2) == ["best", "best"]
    assert len(buffer) == 3


def test_each_is_sampled_as_often_as_it_may_and_then_makes_room() -> None:
    buffer = make(capacity=2, max_times_sampled=2)
    assert buffer.push_many(["a", "b", "c"], push_id="p/1") == 2
    assert drawn(buffer, 3) == ["a", "a", "b"]
    assert buffer.push_many(["c"], push_id="p/2") == 1
    assert drawn(buffer, 3) == ["b", "c", "c"]
    assert buffer.statistics().num_taken == 6


def test_the_limiter_holds_up_both_sides_and_says_why() -> None:
    buffer = make(sampler="uniform", capacity=100, min_size=4, samples_per_insert=1.0, tolerance=2.0)
    assert "needs 4" in buffer.statistics().sampling
    answers: list[int] = []
    buffer.offer_many(list(range(8)), push_id="p/1", on_counted=lambda count, _error: answers.append(count))
    assert answers == [6], "one after another up to the band"
    buffer.offer_many([6, 7], push_id="p/2", on_counted=lambda count, _error: answers.append(count))
    assert answers == [6]
    assert "inserting waits for samples" in buffer.statistics().inserting
    drawn(buffer, 2)
    assert answers == [6, 2], "a sample lets those in who wait"
    drawn(buffer, 4)
    assert buffer.sample(1) is None
    assert "sampling waits for inserts" in buffer.why_not_sample(1)
    with pytest.raises(errors.ConfigError, match="tolerance"):
        buffer.sample(5)


def test_a_sample_waits_for_what_it_needs() -> None:
    buffer = make(sampler="uniform", capacity=8, min_size=3)
    pushing = threading.Timer(0.01, lambda: buffer.push_many([1, 2, 3], push_id="p/1"))
    pushing.start()
    sampled = buffer.sample(2, timeout_s=20.0)
    assert sampled is not None
    pushing.join()


def test_compressed_items_come_as_they_went_and_take_less_room() -> None:
    buffer = make(sampler="uniform", capacity=2, compress=True)
    item = {"image": np.zeros((84, 84, 4), np.uint8), "name": "x", "small": np.arange(3)}
    buffer.push_many([item], push_id="p/1")
    (stored,) = buffer._items._items._stored.values()
    assert stored.content.nbytes < 1000
    for _ in range(2):
        (back,) = drawn(buffer, 1)
        assert np.array_equal(back["image"], item["image"])
        assert back["name"] == "x"
        assert back["small"].tolist() == [0, 1, 2]


def test_save_and_restore_go_on_as_if_nothing_had_been() -> None:
    settings = BufferSettings(capacity=8, sampler="prioritised", max_times_sampled=5, compress=True)
    first, second = NestBuffer(settings, of="nest", seed=1), NestBuffer(settings, of="nest", seed=2)
    for number in range(12):
        first.push_many([number], push_id=f"p/{number}", priorities=[number + 1.0])
        drawn(first, 1)
    second.restore(first.save())
    for number in range(12, 20):
        for buffer in (first, second):
            buffer.push_many([number], push_id=f"p/{number}")
        assert drawn(first, 2) == drawn(second, 2)
    assert first.statistics() == second.statistics()


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match="stay full for ever"):
        BufferSettings(sampler="uniform", when_full="block")
    with pytest.raises(errors.ConfigError, match="could never be sampled from"):
        BufferSettings(capacity=4, min_size=5)
    with pytest.raises(errors.ConfigError, match="sampler='unifrom' is not one of"):
        BufferSettings(sampler="unifrom")
    with pytest.raises(errors.ConfigError, match="capacity=0"):
        settings_of(0)
    with pytest.raises(errors.ConfigError, match="tolerance"):
        BufferSettings(samples_per_insert=8.0, tolerance=1.0, sampler="uniform")
    with pytest.raises(errors.ConfigError, match="min_rows is for a queue"):
        make(sampler="lifo").take(min_rows=1)
    with pytest.raises(errors.ConfigError, match="1 or more"):
        make().sample(0)
