"""One contract for replay in process, by mapped memory, and by TCP; and for shards."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ludus import errors
from ludus.services.buffer.flat_replay import FlatReplay
from ludus.services.buffer.replay_client import connect
from ludus.services.buffer.selectors import Fifo, Prioritised
from ludus.services.buffer.sharded_replay import ShardedReplayClient
from ludus.services.buffer.table import TableSettings

from .replay_rows import SPEC, numbers_of, rows, served

Open = Callable[..., Any]
UNIFORM = TableSettings()
WAYS = ["in process", "mapped", "shared socket", "tcp", "two shards"]


@pytest.fixture(params=WAYS)
def open_replay(request: pytest.FixtureRequest) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:

        def open_one(settings: TableSettings, num_slots: int, **options: Any) -> Any:
            if request.param == "in process":
                return FlatReplay(SPEC, settings, num_slots=num_slots)
            address = stack.enter_context(served(settings, num_slots=num_slots))
            way = {"shared socket": {"mapped": False}, "tcp": {"mapped": False, "transport": "zmq"}}
            client = connect(address, **way.get(request.param, {}), **options)
            stack.callback(client.close)
            return client

        def open_any(settings: TableSettings = UNIFORM, num_slots: int = 64, **options: Any) -> Any:
            if request.param == "two shards":
                return ShardedReplayClient([open_one(settings, num_slots // 2, **options) for _ in range(2)])
            return open_one(settings, num_slots, **options)

        yield open_any


def finish(replay: Any) -> None:
    if not isinstance(replay, FlatReplay):
        replay.flush()


def size_of(replay: Any) -> int:
    stats = replay.statistics()
    return int(stats.size if isinstance(replay, FlatReplay) else stats["size"])


def test_rows_come_as_they_went_with_their_keys(open_replay: Open) -> None:
    replay = open_replay()
    for first in range(0, 40, 4):
        replay.insert(rows(*range(first, first + 4)))
    finish(replay)
    assert size_of(replay) == 40
    seen: dict[int, int] = {}
    for _ in range(20):
        batch, keys, probabilities = replay.sample(32)
        assert probabilities == pytest.approx(np.full(32, 1 / 40), rel=0.2)
        for number, key in zip(numbers_of(batch), keys.tolist(), strict=True):
            assert seen.setdefault(key, number) == number, "a key is one row's"
    assert set(seen.values()) == set(range(40))


def test_the_oldest_make_room(open_replay: Open) -> None:
    replay = open_replay(num_slots=16, credits=1)  # with more, inserts may overtake each other on their way
    for first in range(0, 64, 4):
        replay.insert(rows(*range(first, first + 4)))
    finish(replay)
    assert size_of(replay) == 16
    drawn = {number for _ in range(20) for number in numbers_of(replay.sample(16)[0])}
    assert drawn == set(range(48, 64))


def test_priorities_at_insert_and_later_decide_what_is_drawn(open_replay: Open) -> None:
    replay = open_replay(TableSettings(sampler=Prioritised(exponent=1.0)), num_ahead=0)
    for first in range(0, 16, 4):
        replay.insert(rows(*range(first, first + 4)), np.array([0.0, 0.0, 0.0, 1.0]))
    finish(replay)
    batch, keys, _ = replay.sample(64)
    assert set(numbers_of(batch)) == {3, 7, 11, 15}
    is_3 = batch["number"] == 3
    replay.update_priorities(keys, np.where(is_3, 7.0, 1.0))
    finish(replay)
    replay.statistics()  # shards learn of their new sums
    counts = Counter(number for _ in range(40) for number in numbers_of(replay.sample(64)[0]))
    assert counts[3] / 2560 == pytest.approx(0.7, abs=0.05)


def test_rows_that_do_not_fit_are_refused_and_harm_nothing(open_replay: Open) -> None:
    replay = open_replay()
    bad: list[dict[str, Any]] = [
        {"number": np.zeros(2, np.int64)},
        {**rows(1, 2), "obs": np.zeros((2, 3), np.float32)} if not isinstance(replay, FlatReplay) else {},
        {**rows(1, 2), "done": np.zeros(3, np.bool_)},
    ]
    for batch in bad:
        with pytest.raises(errors.DataError, match="nothing was"):
            replay.insert(batch)
            finish(replay)
    replay.insert(rows(1, 2))
    replay.insert(rows(3, 4))
    finish(replay)
    assert set(numbers_of(replay.sample(32)[0])) == {1, 2, 3, 4}


def test_each_is_sampled_as_often_as_it_may(open_replay: Open) -> None:
    replay = open_replay(TableSettings(sampler=Fifo(), max_times_sampled=2), num_ahead=0)
    replay.insert(rows(*range(8)))
    replay.insert(rows(*range(8, 16)))
    finish(replay)
    counts: Counter[int] = Counter()
    for _ in range(16):
        batch, _keys, _p = replay.sample(2)
        counts.update(numbers_of(batch))
        if not isinstance(replay, FlatReplay):
            replay.statistics()
    assert counts == dict.fromkeys(range(16), 2)
    assert size_of(replay) == 0


def test_a_sample_is_not_written_to_by_the_next_call(open_replay: Open) -> None:
    replay = open_replay()
    replay.insert(rows(*range(16)))
    replay.insert(rows(*range(16, 32)))
    finish(replay)
    batch, _, _ = replay.sample(8)
    before = numbers_of(batch)
    replay.sample(8)
    assert numbers_of(batch) == before
