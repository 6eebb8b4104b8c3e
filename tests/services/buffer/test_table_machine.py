"""One table against a plain model: dicts, lists and sorting, one item at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ludus.errors import DataError
from ludus.services.buffer.limiters import MinSize, Queue, SamplesPerInsert
from ludus.services.buffer.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritised, Uniform
from ludus.services.buffer.table import Table

SELECTORS = [Uniform(), Prioritised(exponent=1.0), Prioritised(exponent=0.0), Fifo(), Lifo(), MinHeap(), MaxHeap()]
LIMITERS = [
    MinSize(min_size=1),
    MinSize(min_size=4),
    SamplesPerInsert(ratio=2.0, min_size=3, tolerance=12.0),
    SamplesPerInsert(ratio=0.5, min_size=1, tolerance=5.0),
    Queue(capacity=6),
]
NUM_SLOTS = 12
PRIORITIES = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 7.0])


class TableMachine(RuleBasedStateMachine):
    @initialize(
        sampler=st.sampled_from(SELECTORS),
        remover=st.sampled_from(SELECTORS),
        limiter=st.sampled_from(LIMITERS),
        capacity=st.sampled_from([1, 5, 8, NUM_SLOTS]),
        max_times=st.sampled_from([0, 0, 1, 3]),
        is_ring=st.booleans(),
        seed=st.integers(0, 1000),
    )
    def begin(
        self, sampler: Any, remover: Any, limiter: Any, capacity: int, max_times: int, is_ring: bool, seed: int
    ) -> None:
        self.make = lambda: Table(
            num_slots=NUM_SLOTS,
            capacity=capacity,
            sampler=sampler,
            remover=remover,
            limiter=limiter,
            max_times_sampled=max_times,
        )
        self.table = self.make()
        self.sampler, self.remover, self.limiter = sampler, remover, limiter
        self.capacity, self.max_times, self.is_ring = capacity, max_times, is_ring
        self.uses_priorities = sampler.uses_priorities or remover.uses_priorities
        self.rng = np.random.default_rng(seed)
        self.items: dict[int, list[float]] = {}  # key → [priority, times sampled]
        self.max_priority = 1.0
        self.next = 0
        self.num_inserted = self.num_sampled = self.num_removed = self.num_evicted = self.num_exhausted = 0

    # -- the model

    def order(self, selector: Any) -> list[int]:
        match selector:
            case Fifo():
                return sorted(self.items)
            case Lifo():
                return sorted(self.items, reverse=True)
            case MinHeap():
                return sorted(self.items, key=lambda key: (self.items[key][0], key))
            case MaxHeap():
                return sorted(self.items, key=lambda key: (-self.items[key][0], key))
        raise AssertionError(selector)

    def new_keys(self, num: int) -> list[int]:
        """In a ring, consecutive ones; in a list of free slots, ones that lead to free slots, ever larger."""
        if self.is_ring:
            keys = list(range(self.next, self.next + num))
            self.next += num
            return keys
        used = {key % NUM_SLOTS for key in self.items}
        free = [slot for slot in range(NUM_SLOTS) if slot not in used]
        slots = [int(slot) for slot in self.rng.permutation(free)][:num]
        keys = [(self.next + number) * NUM_SLOTS + slot for number, slot in enumerate(slots)]
        self.next += len(slots)
        return keys

    # -- rules

    @rule(num=st.integers(1, 8), data=st.data())
    def insert(self, num: int, data: st.DataObject) -> None:
        keys = self.new_keys(num)
        if not keys:
            return
        given = data.draw(st.none() | st.lists(PRIORITIES, min_size=len(keys), max_size=len(keys)))
        kept = keys[-self.capacity :]
        expected_gone = [key for key in self.items if key % NUM_SLOTS in {new % NUM_SLOTS for new in kept}]
        for key in expected_gone:
            del self.items[key]
        expected_gone += keys[: -self.capacity] if len(keys) > self.capacity else []
        excess = max(0, len(self.items) + len(kept) - self.capacity)
        removed = self.table.insert(np.array(keys), None if given is None else np.array(given)).tolist()
        chosen = [key for key in removed if key not in expected_gone]
        assert len(chosen) == excess
        assert len(set(removed)) == len(removed) == len(expected_gone) + excess
        if not isinstance(self.remover, Uniform | Prioritised):
            assert chosen == self.order(self.remover)[:excess]
        elif isinstance(self.remover, Prioritised):
            assert sum(self.items[key][0] == 0 for key in chosen) == max(
                0, excess - sum(priority > 0 for priority, _ in self.items.values())
            )
        for key in chosen:
            del self.items[key]
        priorities = given or [self.max_priority] * len(keys)
        if self.uses_priorities and given:
            self.max_priority = max(self.max_priority, *given[-len(kept) :])
        for key, priority in zip(keys, priorities, strict=True):
            if key in kept:
                self.items[key] = [priority, 0]
        self.num_inserted += len(keys)
        self.num_evicted += len(removed)

    @rule(num=st.integers(1, 8))
    @precondition(lambda self: self.items)
    def sample(self, num: int) -> None:
        left = sum(self.max_times - times for _, times in self.items.values())
        positive = sum(priority > 0 for priority, _ in self.items.values())
        is_impossible = bool(self.max_times) and left < num
        is_impossible |= isinstance(self.sampler, Prioritised) and not positive
        if is_impossible:
            with pytest.raises(DataError, match="cannot sample"):
                self.table.sample(num, self.rng)
            return
        before = {key: list(item) for key, item in self.items.items()}
        drawn = self.table.sample(num, self.rng)
        keys = drawn.keys.tolist()
        if isinstance(self.sampler, Uniform | Prioritised):
            assert set(keys) <= set(self.items)
            if isinstance(self.sampler, Prioritised):
                assert all(before[key][0] > 0 for key in keys)
            assert len(keys) == num or (self.max_times and isinstance(self.sampler, Prioritised))
            if not self.max_times:
                weights = self.weights(before)
                total = sum(weights.values())
                for key, probability in zip(keys, drawn.probabilities, strict=True):
                    assert np.isclose(probability, weights[key] / total)
        else:
            expected: list[int] = []
            for key in self.order(self.sampler):
                times = self.max_times - int(self.items[key][1]) if self.max_times else num
                expected += [key] * times
            assert keys == expected[:num]
            assert (drawn.probabilities == 1).all()
        for key in keys:
            self.items[key][1] += 1
            if self.max_times:
                assert self.items[key][1] <= self.max_times
        for key in set(keys):
            if self.max_times and self.items[key][1] == self.max_times:
                del self.items[key]
                self.num_exhausted += 1
        self.num_sampled += len(keys)

    def weights(self, items: dict[int, list[float]]) -> dict[int, float]:
        if isinstance(self.sampler, Uniform):
            return dict.fromkeys(items, 1.0)
        exponent = self.sampler.exponent
        return {
            key: float(priority > 0) if exponent == 0 else priority**exponent for key, (priority, _) in items.items()
        }

    @rule(data=st.data())
    @precondition(lambda self: self.items)
    def update(self, data: st.DataObject) -> None:
        known = sorted(self.items)
        keys = data.draw(st.lists(st.sampled_from([*known, known[-1] + NUM_SLOTS, 10**9]), max_size=6))
        priorities = data.draw(st.lists(PRIORITIES, min_size=len(keys), max_size=len(keys)))
        num = self.table.update_priorities(np.array(keys, np.int64), np.array(priorities))
        assert num == sum(key in self.items for key in keys)
        for key, priority in zip(keys, priorities, strict=True):
            if key in self.items and self.uses_priorities:
                self.items[key][0] = priority
                self.max_priority = max(self.max_priority, priority)

    @rule(data=st.data())
    @precondition(lambda self: self.items)
    def remove(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from([*sorted(self.items), 10**9]), max_size=4))
        num = self.table.remove(np.array(keys, np.int64))
        gone = set(keys) & set(self.items)
        assert num == len(gone)
        for key in gone:
            del self.items[key]
        self.num_removed += num

    @rule()
    def restart(self) -> None:
        saved = self.table.save()
        other = self.make()
        other.restore(saved)
        if self.table.can_sample(1) and not self.max_times:
            first, second = (table.sample(1, np.random.default_rng(3)) for table in (self.table, other))
            assert first.keys.tolist() == second.keys.tolist()
            assert first.probabilities.tolist() == second.probabilities.tolist()
            self.num_sampled += 1
        self.table = other
        self.table.restore(saved)
        if self.num_sampled != self.table.statistics().num_sampled:
            self.num_sampled -= 1  # the draw of the comparison was made after the checkpoint

    # -- always

    @invariant()
    def it_is_as_the_model(self) -> None:
        if not hasattr(self, "table"):
            return
        assert self.table.keys().tolist() == sorted(self.items)
        stats = self.table.statistics()
        assert (stats.size, stats.capacity) == (len(self.items), self.capacity)
        assert (stats.num_inserted, stats.num_sampled) == (self.num_inserted, self.num_sampled)
        assert (stats.num_removed, stats.num_evicted) == (self.num_removed, self.num_evicted)
        assert stats.num_exhausted == self.num_exhausted
        assert stats.num_inserted == stats.size + stats.num_removed + stats.num_evicted + stats.num_exhausted
        assert self.table.can_insert(1) == (not stats.inserting)
        assert self.table.can_sample(1) == (not stats.sampling)
        if self.uses_priorities:
            keys = sorted(self.items)
            assert self.table.priorities(np.array(keys, np.int64)).tolist() == [self.items[key][0] for key in keys]
            assert self.table.max_priority == self.max_priority

    @invariant()
    def the_limiter_keeps_its_promise(self) -> None:
        if not hasattr(self, "table"):
            return
        can_sample, can_insert = self.table.can_sample(1), self.table.can_insert(1)
        size, limiter = len(self.items), self.limiter
        match limiter:
            case MinSize():
                assert can_insert
                assert not can_sample or size >= limiter.min_size
            case Queue():
                assert can_insert == (size < limiter.capacity)
            case SamplesPerInsert():
                balance = self.num_inserted * limiter.ratio - self.num_sampled
                middle = limiter.min_size * limiter.ratio
                if can_sample:
                    assert size >= limiter.min_size
                    assert balance - 1 >= middle - limiter.tolerance
                if can_insert and size >= limiter.min_size:
                    assert balance + limiter.ratio <= middle + limiter.tolerance


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
