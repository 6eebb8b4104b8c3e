from __future__ import annotations

import threading

import pytest

from ludus import data, errors
from ludus.clock import FakeClock
from ludus.services.buffer.nest_buffer import Item, NestBuffer

from .segments import make, same, value_of


def values(items: list[Item]) -> list[float]:
    return [value_of(item.segment) for item in items]


def filled(count: int, *, capacity: int = 4) -> NestBuffer:
    buffer = NestBuffer(capacity)
    for number in range(1, count + 1):
        buffer.push(make(number), segment_id=f"p/{number}")
    return buffer


def test_first_in_first_out_and_all_or_nothing() -> None:
    buffer = filled(3)
    assert buffer.take(4) == []
    assert values(buffer.take(2)) == [1, 2]
    assert buffer.take(2) == []
    assert values(buffer.take(1)) == [3]


def test_rows_can_be_asked_for_instead() -> None:
    buffer = filled(3)
    assert values(buffer.take(min_rows=3)) == [1, 2]
    assert buffer.take(min_rows=3) == []
    assert buffer.statistics().num_rows_taken == 4


def test_more_than_will_ever_come_is_refused() -> None:
    buffer = filled(4, capacity=4)
    with pytest.raises(errors.ConfigError, match="cannot take 5"):
        buffer.take(5)
    with pytest.raises(errors.ConfigError, match="never come"):
        buffer.take(min_rows=9)
    with pytest.raises(errors.ConfigError, match="either"):
        buffer.take()


def test_a_full_buffer_refuses_a_push() -> None:
    buffer = filled(4)
    with pytest.raises(errors.Overloaded, match="as many as it may"):
        buffer.push(make(5), segment_id="p/5")
    buffer.take(1)
    buffer.push(make(5), segment_id="p/5")


def test_what_is_offered_to_a_full_buffer_is_queued_when_there_is_room() -> None:
    buffer = filled(2, capacity=2)
    calls: list[tuple[int, object]] = []
    for number in (3, 4, 5):
        buffer.offer(make(number), segment_id=f"p/{number}", on_queued=lambda e, n=number: calls.append((n, e)))
    assert calls == []
    assert buffer.statistics().num_waiting_producers == 3
    assert values(buffer.take(1)) == [1]
    assert calls == [(3, None)]
    assert values(buffer.take(2)) == [2, 3]
    assert calls == [(3, None), (4, None), (5, None)]
    assert values(buffer.take(2)) == [4, 5]


def test_a_segment_is_never_queued_twice() -> None:
    buffer = filled(2, capacity=2)
    calls: list[object] = []
    buffer.push(make(2), segment_id="p/2")
    buffer.offer(make(1), segment_id="p/1", on_queued=calls.append)
    assert calls == [None], "it is queued: the producer has its credit"
    for _ in range(2):
        buffer.offer(make(3), segment_id="p/3", on_queued=calls.append)
    assert calls == [None], "it still waits"
    assert values(buffer.take(2)) == [1, 2]
    assert calls == [None] * 3
    assert values(buffer.take(1)) == [3]
    buffer.push(make(3), segment_id="p/3")
    stats = buffer.statistics()
    assert (stats.num_pushed, stats.num_taken, stats.size, stats.num_duplicates) == (3, 3, 0, 4)


def test_time_spent_waiting_for_room_is_counted() -> None:
    clock = FakeClock()
    buffer = NestBuffer(1, clock=clock)
    for number in (1, 2):
        buffer.offer(make(number), segment_id=f"p/{number}", on_queued=lambda _e: None)
    clock.advance(2.0)
    assert buffer.statistics().full_s == 2.0
    buffer.take(1)
    clock.advance(5.0)
    assert buffer.statistics().full_s == 2.0


def test_a_take_waits_for_enough() -> None:
    buffer = NestBuffer(4)
    taken: list[float] = []
    thread = threading.Thread(target=lambda: taken.extend(values(buffer.take(2, timeout_s=10))))
    thread.start()
    for number in (1, 2):
        buffer.push(make(number), segment_id=f"p/{number}")
    thread.join(10)
    assert taken == [1, 2]
    assert buffer.take(1, timeout_s=0.01) == []


def test_closing_wakes_everybody() -> None:
    buffer = filled(1, capacity=1)
    calls: list[object] = []
    buffer.offer(make(2), segment_id="p/2", on_queued=calls.append)
    other = NestBuffer(2)
    thread = threading.Thread(target=lambda: calls.append(other.take(2, timeout_s=30)))
    thread.start()
    other.close()
    thread.join(10)
    buffer.close()
    assert calls[0] == []
    assert isinstance(calls[1], errors.Unreachable)
    with pytest.raises(errors.Unreachable, match="closed"):
        buffer.push(make(3), segment_id="p/3")


def test_a_saved_buffer_goes_on_with_what_was_queued_and_knows_what_it_has_seen() -> None:
    buffer = filled(3, capacity=3)
    buffer.take(1)
    buffer.push(make(4), segment_id="p/4")
    buffer.offer(make(5), segment_id="p/5", on_queued=lambda _e: None)
    saved = data.decode([bytes(frame) for frame in data.encode(buffer.save())])
    restored = NestBuffer(3)
    restored.restore(saved)
    restored.push(make(1), segment_id="p/1")
    restored.push(make(4), segment_id="p/4")
    assert restored.statistics().num_duplicates == 2
    items = restored.take(3)
    assert values(items) == [2, 3, 4]
    assert same(items[0].segment, make(2))
    restored.push(make(5), segment_id="p/5")
    assert values(restored.take(1)) == [5], "what waited was not acknowledged, and is pushed again"
    assert restored.statistics().num_pushed == restored.statistics().num_taken == 5
    with pytest.raises(errors.DataError, match="before anything is pushed"):
        restored.restore(saved)


def test_many_threads_lose_nothing_and_repeat_nothing() -> None:
    buffer = NestBuffer(3)
    num_producers, num_each = 4, 100

    def produce(producer: int) -> None:
        for number in range(1, num_each + 1):
            queued = threading.Event()
            for _ in range(1 + (number % 3 == 0)):  # some are pushed twice
                buffer.offer(
                    make(producer * num_each + number, obs_size=1),
                    segment_id=f"p{producer}/{number}",
                    on_queued=lambda _e, queued=queued: queued.set(),
                )
            assert queued.wait(20)

    threads = [threading.Thread(target=produce, args=(producer,)) for producer in range(num_producers)]
    for thread in threads:
        thread.start()
    taken: list[float] = []
    while len(taken) < num_producers * num_each:
        items = buffer.take(1, timeout_s=10)
        assert items
        assert len(buffer) <= 3
        taken += values(items)
    for thread in threads:
        thread.join(10)
    assert sorted(taken) == list(range(1, num_producers * num_each + 1))
    assert buffer.take(1) == []
