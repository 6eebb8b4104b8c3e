"""Named buffers: what is acknowledged is queued once, what is dropped is counted, and the adapters nest."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus import errors
from ludus.trial import current as trials
from ludus.trial.named.buffer import SLICE_S, Buffer, _Push

from .drivers import read_line, start, wait_until

TAKE = """
import sys, threading, ludus
ludus.init(sys.argv[1], "t")
buffer = ludus.RemoteBuffer("b")
buffer.take(1, 0.01)
threading.Timer(0.2, lambda: print("ready", flush=True)).start()
buffer.take(64, 60.0)
"""


def numbers(items: list[Any]) -> list[int]:
    return [item["n"] for item in items]


def drain(buffer: Buffer, count: int) -> list[Any]:
    taken: list[Any] = []
    while len(taken) < count:
        got = buffer.take(count - len(taken), 10.0)
        assert got, f"only {len(taken)} came"
        taken += got
    return taken


def test_items_are_any_nests_and_come_as_they_went(trial: trials.Trial) -> None:
    buffer = ludus.RemoteBuffer("b")
    item = {"obs": np.arange(6.0).reshape(2, 3), "info": ("win", [1, 2.5, None]), "n": 3}
    assert buffer.push(item) == 1
    assert len(buffer) == 1
    (back,) = buffer.take(1, timeout_s=5.0)
    assert np.array_equal(back["obs"], item["obs"])
    assert back["info"] == item["info"]
    assert buffer.take(1, timeout_s=0.01) == []
    assert buffer.push() == 0


def test_what_does_not_fit_is_dropped_and_counted(trial: trials.Trial) -> None:
    buffer = ludus.RemoteBuffer("b", capacity=3)
    assert buffer.push({"n": 1}, {"n": 2}) == 2
    assert buffer.push({"n": 3}, {"n": 4}, {"n": 5}) == 1
    assert buffer.push({"n": 6}) == 0
    stats = buffer.statistics()
    assert (stats["num_pushed"], stats["num_dropped"], stats["size"], stats["capacity"]) == (3, 3, 3, 3)
    assert numbers(buffer.take(9, timeout_s=1.0)) == [1, 2, 3]


def test_without_dropping_a_push_waits_for_room_and_not_for_ever(trial: trials.Trial) -> None:
    buffer = ludus.RemoteBuffer("b", capacity=2)
    taken: list[int] = []
    consumer = threading.Thread(target=lambda: taken.extend(numbers(drain(buffer, 7))))
    consumer.start()
    assert buffer.push(*[{"n": n} for n in range(7)], drop=False) == 7
    consumer.join(10)
    assert taken == list(range(7)), "also more than it ever holds"
    with pytest.raises(errors.DeadlineExceeded, match=r"1 items were not queued.*2 were"):
        buffer.push({"n": 1}, {"n": 2}, {"n": 3}, drop=False, timeout_s=0.1)
    assert numbers(buffer.take(9, timeout_s=1.0)) == [1, 2], "and what was not queued is not queued later"
    assert buffer.statistics()["num_dropped"] == 0


def test_a_push_that_comes_again_is_queued_once_and_answered_the_same(trial: trials.Trial) -> None:
    buffer = ludus.RemoteBuffer("b", capacity=2)
    remote = trial.remote("buffer-b")
    for _ in range(3):
        assert remote.push_many([{"n": 1}, {"n": 2}, {"n": 3}], "me/1") == 2
    waiting = [remote.submit("push_many", [{"n": 4}], "me/2", 5.0) for _ in range(2)]
    wait_until(lambda: buffer.statistics()["num_waiting_producers"] == 1)
    assert numbers(drain(buffer, 3)) == [1, 2, 4]
    assert [call.result() for call in waiting] == [1, 1]
    assert remote.push_many([{"n": 1}], "me/1") == 0, "a straggler of old"
    assert buffer.statistics()["num_pushed"] == 3


def test_two_that_wait_under_one_id_are_both_answered_that_there_was_no_room(trial: trials.Trial) -> None:
    ludus.RemoteBuffer("b", capacity=1).push(0)
    remote = trial.remote("buffer-b")
    calls = [remote.submit("push_many", [1], "me/1", 0.1) for _ in range(2)]
    assert [call.result() for call in calls] == [0, 0]


def test_another_capacity_is_an_error_and_none_is_as_it_is(trial: trials.Trial) -> None:
    ludus.RemoteBuffer("b", capacity=4)
    assert ludus.RemoteBuffer("b").statistics()["capacity"] == 4
    ludus.RemoteBuffer("b", capacity=4)
    with pytest.raises(errors.ConfigError, match="capacity of 4 already"):
        ludus.RemoteBuffer("b", capacity=5)
    with pytest.raises(errors.ConfigError, match="cannot name a buffer"):
        ludus.RemoteBuffer("a/b")
    assert ludus.RemoteBuffer("c").statistics()["capacity"] == 1024


def test_many_threads_and_an_event_loop_lose_nothing(trial: trials.Trial) -> None:
    num_threads, num_each = 4, 50
    buffer = ludus.RemoteBuffer("b", capacity=8)

    def produce(first: int) -> None:
        for n in range(first, first + num_each):
            assert buffer.push({"n": n}, drop=False) == 1

    async def produce_many(first: int) -> None:
        own = ludus.RemoteBuffer("b")  # as an actor would
        await asyncio.gather(*[own.push_async({"n": n}, drop=False) for n in range(first, first + num_each)])

    threads = [threading.Thread(target=produce, args=(index * num_each,)) for index in range(num_threads)]
    threads.append(threading.Thread(target=lambda: asyncio.run(produce_many(num_threads * num_each))))
    for thread in threads:
        thread.start()
    taken = numbers(drain(buffer, (num_threads + 1) * num_each))
    for thread in threads:
        thread.join(10)
    assert sorted(taken) == list(range((num_threads + 1) * num_each))


def test_an_event_loop_goes_on_while_a_push_waits_for_room(trial: trials.Trial) -> None:
    ludus.RemoteBuffer("b", capacity=1).push({"n": 0})

    async def main() -> tuple[int, float]:
        buffer = ludus.RemoteBuffer("b")
        push = asyncio.create_task(buffer.push_async({"n": 1}, drop=False))
        longest, last = 0.0, time.perf_counter()
        for _ in range(60):
            await asyncio.sleep(0.01)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        assert not push.done()
        await asyncio.to_thread(buffer.take, 1, 5.0)
        return await push, longest

    queued, longest = asyncio.run(main())
    assert queued == 1
    assert longest < 0.3


def test_it_travels_by_its_name(trial: trials.Trial) -> None:
    buffer = pickle.loads(pickle.dumps(ludus.RemoteBuffer("b", capacity=7)))  # noqa: S301 - as an engine sends it
    assert buffer.statistics()["capacity"] == 7


def test_iterating_ends_when_the_trial_stops(trial: trials.Trial) -> None:
    buffer = ludus.RemoteBuffer("b")
    buffer.push({"n": 1}, {"n": 2}, {"n": 3})
    batches = ludus.PrefetchBuffer(ludus.BatchBuffer(buffer, batch_size=2))
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.extend(n for batch in batches for n in batch["n"].tolist()))
    thread.start()
    wait_until(lambda: len(seen) == 2)
    trial.note_stopping()
    thread.join(5)
    assert not thread.is_alive()
    assert seen == [1, 2]
    with pytest.raises(StopIteration):
        next(buffer)


def test_batches_are_stacked_and_a_batch_that_is_not_full_waits(trial: trials.Trial) -> None:
    buffer = ludus.RemoteBuffer("b")
    batches = ludus.BatchBuffer(buffer, batch_size=3)
    buffer.push(*[{"obs": np.full(2, n), "n": n, "who": "x"} for n in range(4)])
    batch = next(batches)
    assert batch["obs"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert batch["n"].tolist() == [0, 1, 2]
    assert batch["who"].tolist() == ["x", "x", "x"]
    assert batches.take(1, timeout_s=0.1) == []
    buffer.push(*[{"obs": np.full(2, n), "n": n, "who": "x"} for n in (4, 5)])
    assert next(batches)["n"].tolist() == [3, 4, 5], "what came before is not lost"


def test_several_buffers_are_mixed_exactly_by_their_weights() -> None:
    def endless(value: int) -> Iterator[dict[str, int]]:
        while True:
            yield {"of": value}

    batches = ludus.BatchBuffer([endless(0), endless(1), endless(2)], batch_size=7, weights=[3, 1, 0])
    counts = np.zeros(3)
    for num_batches in range(1, 41):
        counts += np.bincount(next(batches)["of"], minlength=3)
        assert np.all(np.abs(counts - 7 * num_batches * np.array([0.75, 0.25, 0.0])) < 1.0)
    assert counts.tolist() == [210, 70, 0]
    with pytest.raises(errors.ConfigError, match="weights"):
        ludus.BatchBuffer([endless(0)], batch_size=7, weights=[1, 2])


def test_a_mix_waits_for_the_buffer_that_lags(trial: trials.Trial) -> None:
    first, second = ludus.RemoteBuffer("first"), ludus.RemoteBuffer("second")
    batches = ludus.BatchBuffer([first, second], batch_size=4)
    first.push(*[{"n": 1}] * 10)
    assert batches.take(1, timeout_s=0.2) == []
    second.push(*[{"n": 2}] * 2)
    assert sorted(batches.take(1, timeout_s=5.0)[0]["n"].tolist()) == [1, 1, 2, 2]
    assert len(first) == 8


def test_arrays_become_tensors_and_texts_stay() -> None:
    torch = pytest.importorskip("torch")
    frozen = np.ones(3, np.float32)
    frozen.flags.writeable = False
    item = {
        "obs": frozen,
        "back": np.arange(3)[::-1],
        "n": 2,
        "who": np.array(["a", "b"], object),
        "one": np.array(1.5),
    }
    (made,) = ludus.TorchTensorBuffer([item]).take(1, 1.0)
    assert torch.equal(made["obs"], torch.ones(3))
    assert made["back"].tolist() == [2, 1, 0]
    assert made["one"].item() == 1.5
    assert made["n"] == 2
    assert made["who"] is item["who"]


def test_prefetching_gives_everything_in_order_and_then_ends() -> None:
    with ludus.PrefetchBuffer(iter(range(50)), size=3) as ahead:
        assert list(ahead) == list(range(50))
    assert list(ahead) == []


def test_what_the_thread_raises_is_raised_to_the_one_who_waits() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise RuntimeError("no more of this")

    ahead = ludus.PrefetchBuffer(source())
    assert next(ahead) == 1
    with pytest.raises(RuntimeError, match="no more of this"):
        next(ahead)
    with pytest.raises(StopIteration):
        next(ahead)


def test_a_batch_is_used_again_only_while_there_is_no_other() -> None:
    goes_on = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        goes_on.wait(10)
        yield 2

    ahead = ludus.PrefetchBuffer(source(), max_reuse=3)
    assert [next(ahead) for _ in range(3)] == [1, 1, 1]
    assert ahead.take(1, 0.05) == []
    goes_on.set()
    assert next(ahead) == 2
    ahead.close()


def test_closing_ends_the_thread_that_waits(trial: trials.Trial) -> None:
    ahead = ludus.PrefetchBuffer(ludus.RemoteBuffer("b"))
    assert ahead.take(1, 0.05) == []
    ahead.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "ludus-prefetch"]
    with pytest.raises(StopIteration):
        next(ahead)


def test_a_push_that_expired_or_is_of_a_trial_that_stops_is_not_made_again(trial: trials.Trial) -> None:
    buffer = ludus.RemoteBuffer("b", capacity=1)
    buffer.push(0)
    for call in (buffer.push, lambda *args, **kwargs: asyncio.run(buffer.push_async(*args, **kwargs))):
        began = time.monotonic()
        with pytest.raises(errors.DeadlineExceeded, match=r"1 items were not queued.*: it was full for 0\.2 s"):
            call(1, drop=False, timeout_s=0.2)
        assert time.monotonic() - began < 30.0
    trial.note_stopping()
    began = time.monotonic()
    with pytest.raises(errors.DeadlineExceeded, match="0 were: it is full, and the trial is stopping"):
        buffer.push(1, drop=False, timeout_s=120.0)
    assert time.monotonic() - began < 60.0


def test_a_push_whose_call_was_never_made_is_not_taken_for_the_one_before(trial: trials.Trial) -> None:
    buffer = ludus.RemoteBuffer("b")
    buffer.push("first")
    push, failures = _Push(buffer._line, ["second"], drop=True, timeout_s=5.0), [errors.NameTimeout("not there yet")]
    with buffer._line.identity() as identity:
        push.lost(failures.pop())
        push.answered(buffer._line.submit_push(push, identity).result())
    assert buffer.take(5, 5.0) == ["first", "second"]


def test_a_consumer_that_was_killed_gets_nothing_half_a_second_later(trial: trials.Trial, tmp_path: Path) -> None:
    buffer = ludus.RemoteBuffer("b")
    consumer = start(TAKE, tmp_path)
    assert read_line(consumer) == "ready"
    consumer.kill()
    consumer.communicate(timeout=300)
    time.sleep(SLICE_S)  # what it asked for last has ended
    buffer.push(1, 2, 3)
    assert buffer.take(9, timeout_s=5.0) == [1, 2, 3]


def test_a_take_that_is_interrupted_takes_nothing(trial: trials.Trial) -> None:
    buffer = ludus.RemoteBuffer("b")
    buffer.take(1, 0.01)  # the way is open
    for _ in range(3):
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            buffer.take(1, timeout_s=30.0)
        timer.join()
    buffer.push(1, 2)
    assert buffer.take(9, timeout_s=5.0) == [1, 2]
    stats = buffer.statistics()
    assert (stats["num_taken"], stats["size"]) == (2, 0)


def test_a_capacity_that_is_none_is_refused_at_once(trial: trials.Trial) -> None:
    for capacity in (0, -1, 1.5, "3"):
        with pytest.raises(errors.ConfigError, match=r"capacity=.* whole number of 1 or more"):
            ludus.RemoteBuffer("b", capacity=capacity)  # type: ignore[arg-type]
    assert ludus.RemoteBuffer("b", capacity=np.int64(3)).statistics()["capacity"] == 3  # type: ignore[arg-type]


def test_a_capacity_that_is_given_on_an_event_loop_is_its_capacity(trial: trials.Trial) -> None:
    async def cell() -> ludus.RemoteBuffer:
        return ludus.RemoteBuffer("b", capacity=256)

    buffer = asyncio.run(cell())
    assert trial.remote("buffer-b").statistics()["capacity"] == 256, "though nobody has used it yet"
    assert buffer.push(1) == 1


def test_items_that_do_not_look_like_the_others_are_dropped_and_reported() -> None:
    def source() -> Iterator[dict[str, Any]]:
        for n in range(7):
            yield {"n": n, "obs": np.zeros(3 if n == 1 else 2)}

    for make in (lambda batches: batches, ludus.PrefetchBuffer):
        batches = make(ludus.BatchBuffer(source(), batch_size=3))
        with pytest.raises(errors.DataError, match=r"1 of 3 items do not look like the others.*obs"):
            next(batches)
        assert [batch["n"].tolist() for batch in batches] == [[0, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("weights", [[float("nan")], [float("inf")], [-1.0], [0.0]])
def test_a_weight_must_be_a_share(weights: list[float]) -> None:
    with pytest.raises(errors.ConfigError, match="weights"):
        ludus.BatchBuffer([iter([1])], batch_size=1, weights=weights)


def test_a_buffer_can_be_a_replay_table(trial: trials.Trial) -> None:
    buffer = ludus.RemoteBuffer("b", sampler="prioritised", exponent=1.0, capacity=4, min_size=2)
    with pytest.raises(errors.DeadlineExceeded, match="has 0 items and needs 2"):
        buffer.sample(1, timeout_s=0.01)
    assert buffer.push(*[{"n": n} for n in range(6)], priorities=[1, 1, 0, 0, 0, 1]) == 6
    sampled = ludus.RemoteBuffer("b").sample(8)
    assert numbers(sampled.items) == [5] * 8
    assert sampled.probabilities.tolist() == [1.0] * 8
    assert buffer.update_priorities(sampled.keys, np.zeros(8)) == 8
    assert buffer.statistics()["sampling"] == "sampling waits for priorities: all are 0"
    assert buffer.statistics()["num_evicted"] == 2
    with pytest.raises(errors.DataError, match="Give one each"):
        buffer.push({"n": 1}, priorities=[1.0, 2.0])


def test_what_a_full_buffer_does_is_an_option_and_a_push_can_say_otherwise(trial: trials.Trial) -> None:
    oldest = ludus.RemoteBuffer("oldest", capacity=2, when_full="drop_oldest")
    assert oldest.push(1, 2, 3) == 3
    assert oldest.take(9, 1.0) == [2, 3]
    waits = ludus.RemoteBuffer("waits", capacity=2, when_full="block")
    with pytest.raises(errors.DeadlineExceeded, match="1 items were not queued"):
        waits.push(1, 2, 3, timeout_s=0.05)
    assert waits.push(4, drop=True) == 0
    assert asyncio.run(waits.push_async(5, drop=True)) == 0
    assert waits.take(9, 1.0) == [1, 2]


def test_declarations_that_disagree_are_an_error_which_says_what_is_there(trial: trials.Trial) -> None:
    ludus.RemoteBuffer("b", sampler="uniform", capacity=8)
    ludus.RemoteBuffer("b")
    ludus.RemoteBuffer("b", sampler="uniform")
    with pytest.raises(errors.ConfigError, match=r"'b' has sampler='uniform' already and cannot have 'fifo'"):
        ludus.RemoteBuffer("b", sampler="fifo")
    with pytest.raises(errors.ConfigError, match="persist=False already"):
        ludus.RemoteBuffer("b", persist=True)
    with pytest.raises(errors.ConfigError, match="is not one of"):
        ludus.RemoteBuffer("c", sampler="unifrom")
    ludus.RemoteBuffer("b", max_times_sampled=0, when_full="drop_oldest")  # as it is
    make, args = ludus.RemoteBuffer("b", sampler="uniform").__reduce__()
    assert make(*args).statistics()["capacity"] == 8


PUSH = """
import sys, ludus
ludus.init(sys.argv[1], "t")
buffer = ludus.RemoteBuffer("b", persist=True, compress=True)
for n in range(10):
    buffer.push({"n": n})
buffer.take(3)
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_persists_survives_kill_9_of_the_driver(tmp_path: Path) -> None:
    driver = start(PUSH, tmp_path)
    assert read_line(driver) == "ready"
    driver.kill()
    driver.wait()
    with ludus.init(str(tmp_path), "t"):
        buffer = ludus.RemoteBuffer("b", persist=True)
        assert numbers(drain(buffer, 7)) == list(range(3, 10))
        assert len(buffer) == 0
