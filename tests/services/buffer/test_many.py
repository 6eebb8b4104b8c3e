"""Buffers of any nests, and several of them in one push."""

from __future__ import annotations

import pytest

from ludus import data, errors
from ludus.clock import FakeClock
from ludus.services.buffer.nest_buffer import Item, NestBuffer


def values(items: list[Item]) -> list[object]:
    return [item.segment for item in items]


def test_a_buffer_of_nests_takes_any_and_counts_each_as_a_row() -> None:
    buffer = NestBuffer(4, of="nest")
    assert buffer.push_many([{"a": 1}, "two", 3.0], push_id="p/1") == 3
    assert values(buffer.take(min_rows=2)) == [{"a": 1}, "two"]
    assert buffer.statistics().num_rows_taken == 2
    with pytest.raises(errors.ConfigError, match="'segment' or 'nest'"):
        NestBuffer(1, of="nets")


def test_what_does_not_fit_is_dropped_and_counted_once() -> None:
    buffer = NestBuffer(2, of="nest")
    for _ in range(2):
        assert buffer.push_many([1, 2, 3], push_id="p/1") == 2
    assert buffer.push_many([4], push_id="p/2") == 0
    stats = buffer.statistics()
    assert (stats.num_pushed, stats.num_dropped, stats.num_duplicates) == (2, 2, 1)
    assert values(buffer.take(2)) == [1, 2]


def test_what_is_offered_is_queued_as_far_as_it_fits_in_the_order_of_the_line() -> None:
    clock = FakeClock()
    buffer = NestBuffer(2, of="nest", clock=clock)
    buffer.push_many([1, 2], push_id="p/1")
    calls: list[tuple[str, int]] = []
    buffer.offer_many([3, 4, 5], push_id="p/2", on_counted=lambda count, _e: calls.append(("p", count)))
    buffer.offer(6, segment_id="q/1", on_queued=lambda _e: calls.append(("q", 1)))
    assert buffer.push_many([7], push_id="r/1") == 0, "others were before it"
    clock.advance(1.0)
    assert values(buffer.take(2)) == [1, 2]
    assert calls == [("p", 2)]
    assert buffer.statistics().full_s == 2.0
    assert values(buffer.take(2)) == [3, 4]
    assert calls == [("p", 2), ("q", 1)], "5 was not queued: its producer learnt that 2 were"
    assert values(buffer.take(1)) == [6]


def test_what_is_withdrawn_is_reported_to_all_who_offered_it() -> None:
    buffer = NestBuffer(1, of="nest")
    buffer.push_many([1], push_id="p/1")
    calls: list[int] = []
    for _ in range(2):
        buffer.offer_many([2], push_id="p/2", on_counted=lambda count, _e: calls.append(count))
    assert buffer.withdraw("p/2")
    assert calls == [0, 0]
    assert not buffer.withdraw("p/2")
    assert values(buffer.take(1)) == [1]
    assert buffer.take(1) == []


def test_from_at_least_one_to_the_most_wanted() -> None:
    buffer = NestBuffer(3, of="nest")
    assert buffer.take(10, at_least=1) == []
    buffer.push_many([1, 2, 3], push_id="p/1")
    assert values(buffer.take(2, at_least=1)) == [1, 2]
    assert values(buffer.take(10, at_least=1)) == [3]
    with pytest.raises(errors.ConfigError, match="cannot take 4"):
        buffer.take(10, at_least=4)


def test_closing_tells_those_in_line() -> None:
    buffer = NestBuffer(1, of="nest")
    buffer.push_many([1], push_id="p/1")
    calls: list[object] = []
    buffer.offer_many([2], push_id="p/2", on_counted=lambda _count, error: calls.append(error))
    buffer.close()
    assert isinstance(calls[0], errors.Unreachable)
    with pytest.raises(errors.Unreachable, match="closed"):
        buffer.push_many([3], push_id="p/3")


def test_a_saved_buffer_of_nests_still_knows_its_pushes() -> None:
    buffer = NestBuffer(2, of="nest")
    buffer.push_many([{"n": 1}, {"n": 2}, {"n": 3}], push_id="p/4")
    saved = data.decode([bytes(frame) for frame in data.encode(buffer.save())])
    restored = NestBuffer(2, of="nest")
    restored.restore(saved)
    assert restored.push_many([{"n": 1}, {"n": 2}, {"n": 3}], push_id="p/4") == 2
    assert values(restored.take(2)) == [{"n": 1}, {"n": 2}]
    assert restored.statistics().num_dropped == 1


def test_what_is_given_back_is_the_first_again_and_was_never_taken() -> None:
    buffer = NestBuffer(3, of="nest")
    buffer.push_many([1, 2, 3], push_id="p/1")
    taken = buffer.take(2)
    buffer.push_many([4, 5], push_id="p/2")
    buffer.give_back(taken)
    stats = buffer.statistics()
    assert (stats.num_pushed, stats.num_taken, stats.size, stats.num_rows_taken) == (5, 0, 5, 0)
    assert buffer.push_many([6], push_id="p/3") == 0, "it is past its capacity"
    assert values(buffer.take(9, at_least=1)) == [1, 2, 3, 4, 5]
    assert buffer.push_many([7], push_id="p/4") == 1
