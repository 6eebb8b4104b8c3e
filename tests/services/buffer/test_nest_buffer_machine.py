"""The FIFO buffer against a model: whatever is pushed, offered, repeated and taken, each item is had once, in order."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ludus import errors
from ludus.clock import FakeClock
from ludus.services.buffer.nest_buffer import NestBuffer

CAPACITY = 3
AHEAD = st.integers(0, 3)  # of the number that a producer has come to


class FifoMachine(RuleBasedStateMachine):
    """Producers `one-X` push single items in any order; `many-X` push several, each after the answer to its last."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.buffer = NestBuffer(CAPACITY, of="nest", clock=self.clock)
        self.queue: list[Any] = []
        self.waiting: OrderedDict[str, tuple[list[Any], list[list[Any]]]] = OrderedDict()  # items, answers
        self.queued: set[str] = set()  # ids of single items, ever
        self.last_many: dict[str, tuple[int, int]] = {}  # the last push of each, and what was queued of it
        self.num_pushed = self.num_taken = self.num_dropped = self.num_duplicates = 0
        self.waited_s = 0.0
        self.next_item = 0
        self.taken: list[Any] = []
        self.last_taken: list[Any] = []

    # -- the model

    @property
    def room(self) -> int:
        return 0 if self.waiting else max(0, CAPACITY - len(self.queue))

    def new_item(self) -> int:
        self.next_item += 1
        return self.next_item

    def enqueue(self, items: list[Any]) -> None:
        self.queue += items
        self.num_pushed += len(items)

    def admit(self) -> None:
        while self.waiting and len(self.queue) < CAPACITY:
            key, (items, waiting) = self.waiting.popitem(last=False)
            fitting = items[: CAPACITY - len(self.queue)]
            self.enqueue(fitting)
            if key.startswith("one"):
                self.queued.add(key)
                expected: Any = None
            else:
                producer, number = key.rsplit("/", 1)
                self.last_many[producer] = int(number), len(fitting)
                expected = (len(fitting), None)
            for answers in waiting:
                assert answers == [expected]
        for _items, waiting in self.waiting.values():
            assert all(answers == [] for answers in waiting)

    # -- producers

    def key(self, producer: str, ahead: int) -> str:
        """Numbers rise slowly, so that there are always new ones and some that were there before."""
        return f"one-{producer}/{self.next_item // 4 + ahead}"

    @rule(producer=st.sampled_from("aab"), ahead=AHEAD)
    def push(self, producer: str, ahead: int) -> None:
        key, item = self.key(producer, ahead), self.new_item()
        if key in self.queued:
            self.buffer.push(item, segment_id=key)
            self.num_duplicates += 1
        elif not self.room:
            with pytest.raises(errors.Overloaded):
                self.buffer.push(item, segment_id=key)
        else:
            self.buffer.push(item, segment_id=key)
            self.queued.add(key)
            self.enqueue([item])

    @rule(producer=st.sampled_from("aab"), ahead=AHEAD)
    def offer(self, producer: str, ahead: int) -> None:
        key, item = self.key(producer, ahead), self.new_item()
        calls: list[Any] = []
        self.buffer.offer(item, segment_id=key, on_queued=calls.append)
        if key in self.waiting:
            self.num_duplicates += 1
            self.waiting[key][1].append(calls)
            assert calls == []
        elif key in self.queued:
            self.num_duplicates += 1
            assert calls == [None]
        elif self.room:
            self.queued.add(key)
            self.enqueue([item])
            assert calls == [None]
        else:
            self.waiting[key] = [item], [calls]
            assert calls == []

    @rule(producer=st.sampled_from("cd"), size=st.integers(0, 6), can_wait=st.booleans(), is_repeated=st.booleans())
    def push_many(self, producer: str, size: int, can_wait: bool, is_repeated: bool) -> None:
        producer = f"many-{producer}"
        last, count = self.last_many.get(producer, (-1, 0))
        waits = next((key for key in self.waiting if key.startswith(producer)), None)
        if waits is not None:  # it may only be repeated
            self.offer_again(waits, size)
            return
        is_repeated = is_repeated and last >= 0
        key = f"{producer}/{last if is_repeated else last + 1}"
        items = [self.new_item() for _ in range(size)]
        calls: list[Any] = []
        if can_wait:
            self.buffer.offer_many(items, push_id=key, on_counted=lambda *answer: calls.append(answer))
        else:
            calls.append((self.buffer.push_many(items, push_id=key), None))
        if is_repeated:
            self.num_duplicates += 1
            assert calls == [(count, None)]
        elif can_wait and items and not self.room:
            self.waiting[key] = items, [calls]
            assert calls == []
        else:
            fitting = items[: self.room]
            self.enqueue(fitting)
            self.last_many[producer] = last + 1, len(fitting)
            self.num_dropped += 0 if can_wait else size - len(fitting)
            assert calls == [(len(fitting), None)]

    def offer_again(self, key: str, size: int) -> None:
        calls: list[Any] = []
        items = [self.new_item() for _ in range(size)]
        self.buffer.offer_many(items, push_id=key, on_counted=lambda *answer: calls.append(answer))
        self.num_duplicates += size
        self.waiting[key][1].append(calls)

    @precondition(lambda self: any(key.startswith("many") for key in self.waiting))
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key in self.waiting if key.startswith("many")]))
        assert self.buffer.withdraw(key)
        assert not self.buffer.withdraw(key)
        _items, waiting = self.waiting.pop(key)
        assert all(answers == [(0, None)] for answers in waiting)

    # -- consumers

    @rule(num=st.integers(1, CAPACITY), at_least=st.none() | st.integers(1, CAPACITY), by_rows=st.booleans())
    def take(self, num: int, at_least: int | None, by_rows: bool) -> None:
        if by_rows:
            items = self.buffer.take(min_rows=num)
            count = num if len(self.queue) >= num else 0
        else:
            items = self.buffer.take(num, at_least=at_least)
            count = min(num, len(self.queue)) if len(self.queue) >= (at_least or num) else 0
        self.last_taken = items
        assert [item.segment for item in items] == self.queue[:count]
        del self.queue[:count]
        self.num_taken += count
        if count:
            self.admit()

    @precondition(lambda self: self.last_taken)
    @rule()
    def give_back(self) -> None:
        self.buffer.give_back(self.last_taken)
        self.queue[:0] = [item.segment for item in self.last_taken]
        self.num_taken -= len(self.last_taken)
        self.last_taken = []

    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.waited_s += seconds * len(self.waiting)

    @rule()
    def save_and_restore(self) -> None:
        """In another process. What waits is not saved: its producers will offer it again."""
        saved = self.buffer.save()
        full_s = self.buffer.statistics().full_s
        self.waited_s = saved["full_s"]
        assert saved["full_s"] <= full_s
        self.buffer.close()
        for _items, waiting in self.waiting.values():
            assert all(len(answers) == 1 for answers in waiting)
        self.waiting.clear()
        self.last_taken = []
        with pytest.raises(errors.Unreachable):
            self.buffer.push(0, segment_id="late/1")
        self.buffer = NestBuffer(CAPACITY, of="nest", clock=self.clock)
        self.buffer.restore(saved)

    @invariant()
    def it_counts_as_the_model_does(self) -> None:
        stats = self.buffer.statistics()
        assert stats.num_pushed == stats.num_taken + stats.size
        assert (stats.num_pushed, stats.num_taken) == (self.num_pushed, self.num_taken)
        assert stats.num_rows_taken == self.num_taken
        assert (stats.size, stats.num_waiting_producers) == (len(self.queue), len(self.waiting))
        assert (stats.num_dropped, stats.num_duplicates) == (self.num_dropped, self.num_duplicates)
        assert stats.full_s == pytest.approx(self.waited_s)


TestFifo = FifoMachine.TestCase
TestFifo.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
