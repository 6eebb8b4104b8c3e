"""A buffer with a folder: what was pushed is there in the next process, and no more of it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ludus import errors
from ludus.data import record_log
from ludus.data.record_log import RecordLog
from ludus.services.buffer.buffer_settings import BufferSettings
from ludus.services.buffer.nest_buffer import Item, NestBuffer

QUEUE = BufferSettings(capacity=8)
REPLAY = BufferSettings(capacity=8, sampler="prioritised", max_times_sampled=3)


def reopen(buffer: NestBuffer, folder: Path) -> NestBuffer:
    """As after a kill: nothing is written at the end, only the lock is let go."""
    assert buffer._items.log is not None
    buffer._items.log.wait()
    buffer._items.log._held.close()
    return NestBuffer(buffer.settings, of="nest", folder=folder)


def numbers(items: list[Item]) -> list[object]:
    return [item.segment for item in items]


def test_what_was_pushed_and_not_taken_is_there_again_in_its_order(tmp_path: Path) -> None:
    buffer = NestBuffer(QUEUE, of="nest", folder=tmp_path)
    buffer.push_many([1, 2, 3, 4], push_id="a/1")
    assert numbers(buffer.take(1)) == [1]
    taken = buffer.take(2)
    buffer.give_back(taken[1:])
    again = reopen(buffer, tmp_path)
    assert again.push_many([9], push_id="a/1") == 4, "it knows the push"
    assert again.push_many([5], push_id="a/2") == 1
    assert numbers(again.take(3)) == [3, 4, 5]
    stats = again.statistics()
    assert (stats.num_pushed, stats.num_taken, stats.size) == (5, 5, 0)
    again.close()


def test_sample_counts_and_priorities_are_there_again(tmp_path: Path) -> None:
    buffer = NestBuffer(REPLAY, of="nest", folder=tmp_path)
    buffer.push_many(["a", "b"], push_id="p/1", priorities=[1.0, 0.0])
    sampled = buffer.sample(2)
    assert sampled is not None
    assert sampled.items == ["a", "a"]
    assert buffer.update_priorities(sampled.keys[:1], [5.0]) == 1
    again = reopen(buffer, tmp_path)
    assert again._items.table.priorities(sampled.keys).tolist() == [5.0, 5.0]
    last = again.sample(1)
    assert last is not None
    assert last.items == ["a"], "once more, and no more"
    assert again.sample(1) is None
    assert "priorities: all are 0" in again.statistics().sampling
    final = reopen(again, tmp_path)
    assert len(final) == 1
    assert final.update_priorities(last.keys, [1.0]) == 0, "a is gone"
    final.close()


@pytest.mark.parametrize("compress", [False, True])
def test_a_log_that_has_grown_is_compacted_while_it_is_written(tmp_path: Path, compress: bool) -> None:
    buffer = NestBuffer(BufferSettings(capacity=8, compress=compress), of="nest", folder=tmp_path)
    assert buffer._items.log is not None
    buffer._items.log._segment_bytes = 20_000
    noise = np.random.default_rng(0).integers(0, 255, 3000, np.uint8)
    for number in range(40):
        assert buffer.push_many([{"n": number, "noise": noise}], push_id=f"a/{number}") == 1
        if number >= 4:
            assert [item.segment["n"] for item in buffer.take(1)] == [number - 4]
        buffer._items.log.wait()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 80_000
    assert list(tmp_path.glob("*.snapshot"))
    again = reopen(buffer, tmp_path)
    items = again.take(4)
    assert [item.segment["n"] for item in items] == [36, 37, 38, 39]
    assert np.array_equal(items[-1].segment["noise"], noise)
    assert again.push_many([0], push_id="a/39") == 1, "it was answered so before"
    assert len(again) == 0
    again.close()


def test_a_torn_end_costs_what_was_not_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    buffer = NestBuffer(QUEUE, of="nest", folder=tmp_path)
    buffer.push_many([1], push_id="a/1")
    buffer.push_many([2], push_id="a/2")
    (log,) = tmp_path.glob("*.log")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 1)
    with caplog.at_level(logging.WARNING):
        again = reopen(buffer, tmp_path)
    assert "torn or damaged" in caplog.text
    assert again.push_many([2], push_id="a/2") == 1
    assert numbers(again.take(2)) == [1, 2]
    again.close()


def test_a_damaged_record_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    buffer = NestBuffer(QUEUE, of="nest", folder=tmp_path)
    buffer.push_many(["first"], push_id="a/1")
    buffer.push_many(["second"], push_id="a/2")
    (log,) = tmp_path.glob("*.log")
    log.write_bytes(log.read_bytes().replace(b"second", b"damage"))
    with caplog.at_level(logging.WARNING):
        again = reopen(buffer, tmp_path)
    assert "torn or damaged" in caplog.text
    assert numbers(again.take(1)) == ["first"]
    assert len(again) == 0
    again.close()


def test_a_damaged_snapshot_is_not_used_if_it_has_no_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    buffer = NestBuffer(QUEUE, of="nest", folder=tmp_path)
    buffer.push_many([1, 2], push_id="a/1")
    (tmp_path / "00000009.snapshot").write_bytes(b"no snapshot")
    with caplog.at_level(logging.WARNING):
        again = reopen(buffer, tmp_path)
    assert "an older one is used" in caplog.text
    assert numbers(again.take(2)) == [1, 2]
    again.close()


def test_two_processes_do_not_write_to_one_folder(tmp_path: Path) -> None:
    buffer = NestBuffer(QUEUE, of="nest", folder=tmp_path)
    with pytest.raises(errors.ProgramError, match="another process keeps its buffer"):
        NestBuffer(QUEUE, of="nest", folder=tmp_path)
    buffer.close()
    NestBuffer(QUEUE, of="nest", folder=tmp_path).close()


def test_other_settings_than_those_of_the_log_are_refused_and_change_nothing(tmp_path: Path) -> None:
    buffer = NestBuffer(QUEUE, of="nest", folder=tmp_path)
    buffer.push_many([1], push_id="a/1")
    buffer.close()
    with pytest.raises(errors.ConfigError, match="it was not touched"):
        NestBuffer(BufferSettings(capacity=9), of="nest", folder=tmp_path)
    again = NestBuffer(BufferSettings(capacity=8, compress=True), of="nest", folder=tmp_path)
    assert numbers(again.take(1)) == [1]
    again.close()


def test_what_cannot_be_written_is_not_queued(tmp_path: Path) -> None:
    buffer = NestBuffer(QUEUE, of="nest", folder=tmp_path)
    assert buffer._items.log is not None
    os.close(buffer._items.log._fd)
    buffer._items.log._fd = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(errors.DataError, match="nothing was queued"):
        buffer.push_many([1], push_id="a/1")
    assert len(buffer) == 0
    buffer.close()


WRITER = """
import sys
from pathlib import Path
from ludus.data import record_log
from ludus.services.buffer.buffer_settings import BufferSettings
from ludus.services.buffer.nest_buffer import NestBuffer

buffer = NestBuffer(BufferSettings(capacity=1_000_000), of="nest", folder=Path(sys.argv[1]))
buffer._items.log._segment_bytes = 100_000
for number in range(1_000_000):
    buffer.push_many([{"n": number, "pad": b"." * 500}], push_id=f"a/{number}")
    print(number, flush=True)
"""


@pytest.mark.chaos
def test_after_kill_9_in_the_middle_of_pushes_and_snapshots_everything_acknowledged_is_there(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    last = -1
    for line in child.stdout:
        last = int(line)
        if last == 1500:
            child.kill()
    child.wait()
    again = NestBuffer(BufferSettings(capacity=1_000_000), of="nest", folder=tmp_path)
    items = again.take(len(again))
    found = [item.segment["n"] for item in items]
    assert found == list(range(len(found))), "in order, each once"
    assert len(found) >= last + 1
    again.close()


def test_a_closed_log_lets_go_of_its_folder(tmp_path: Path) -> None:
    log = RecordLog(tmp_path, head={"do": "settings"})
    log.start()
    log.close()
    log.close()
    RecordLog(tmp_path, head={"do": "settings"}).close()


def test_records_behind_a_damaged_one_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    buffer = NestBuffer(QUEUE, of="nest", folder=tmp_path)
    for number, item in enumerate(["first", "second", "third"]):
        buffer.push_many([item], push_id=f"a/{number}")
    (log,) = tmp_path.glob("*.log")
    log.write_bytes(log.read_bytes().replace(b"second", b"damage"))
    with caplog.at_level(logging.WARNING):
        again = reopen(buffer, tmp_path)
    assert "torn or damaged" in caplog.text
    assert numbers(again.take(2)) == ["first", "third"]
    again.close()


@pytest.mark.parametrize("settings", [QUEUE, BufferSettings(capacity=4, sampler="prioritised")])
def test_whatever_byte_of_a_log_is_damaged_the_buffer_opens_and_has_what_is_left(
    tmp_path: Path, settings: BufferSettings
) -> None:
    written = tmp_path / "written"
    buffer = NestBuffer(settings, of="nest", folder=written)
    for number in range(6):  # of which the later ones get the slots of earlier ones
        buffer.push_many([number], push_id=f"a/{number}")
        if number % 3 == 2:
            assert buffer.sample(2) is not None
    buffer.close()
    (log,) = written.glob("*.log")
    content = log.read_bytes()
    for place in range(0, len(content), 7):
        folder = tmp_path / str(place)
        folder.mkdir()
        damaged = bytearray(content)
        damaged[place] ^= 0x41
        (folder / log.name).write_bytes(damaged)
        again = NestBuffer(settings, of="nest", folder=folder)
        stats = again.statistics()
        if settings is QUEUE:
            assert stats.num_pushed == stats.num_taken + stats.num_evicted + stats.size
        assert again.push_many(["new"], push_id="b/1") == 1
        assert len(again) == min(stats.size + 1, again.capacity)
        assert all(each in [*range(6), "new"] for each in numbers(again.take(len(again))))
        again.close()


@pytest.mark.parametrize("place", [40, -40])
def test_of_a_damaged_snapshot_without_an_older_one_what_can_be_read_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: int
) -> None:
    buffer = NestBuffer(BufferSettings(capacity=64), of="nest", folder=tmp_path)
    buffer.push_many(list(range(32)), push_id="a/1")
    assert buffer._items.log is not None
    buffer._items._snapshot()
    buffer._items.log.wait()
    buffer.push_many([32], push_id="a/2")
    buffer.close()
    (snapshot,) = tmp_path.glob("*.snapshot")
    damaged = bytearray(snapshot.read_bytes())
    damaged[place] ^= 0x41
    snapshot.write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        again = NestBuffer(BufferSettings(capacity=64), of="nest", folder=tmp_path)
    assert "nothing older is there" in caplog.text
    items = numbers(again.take(len(again)))
    assert len(items) >= 31
    assert items == sorted(items)
    assert items[-1] == 32
    again.close()


def test_a_full_disk_holds_up_no_consumer_and_loses_nothing_that_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = NestBuffer(BufferSettings(capacity=2), of="nest", folder=tmp_path)
    buffer.push("a", segment_id="a/1")
    buffer.push("b", segment_id="a/2")
    answers: list[errors.LudusError | None] = []
    buffer.offer("c", segment_id="a/3", on_queued=answers.append)
    log = buffer._items.log
    assert log is not None
    log._segment_bytes = 0  # it is time for the next log

    def fail(*args: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(record_log, "_append", fail)
        assert numbers(buffer.take(1)) == ["a"]
        assert isinstance(answers[0], errors.DataError)
        assert "nothing was queued" in str(answers[0])
    assert numbers(buffer.take(1)) == ["b"]
    buffer.push("c", segment_id="a/3")
    again = reopen(buffer, tmp_path)
    assert numbers(again.take(len(again)))[-1] == "c"
    again.close()


@pytest.mark.parametrize("keys", [[[0], [1]], [0.5, 1.5], ["a", "b"], 3])
def test_priorities_that_are_refused_are_not_in_the_log(tmp_path: Path, keys: object) -> None:
    buffer = NestBuffer(REPLAY, of="nest", folder=tmp_path)
    buffer.push_many([1, 2], push_id="a/1")
    with pytest.raises(errors.DataError, match="keys are integers"):
        buffer.update_priorities(keys, [1.0, 2.0])
    with pytest.raises(errors.DataError, match="without priorities"):
        buffer.update_priorities([1], None)
    again = reopen(buffer, tmp_path)
    assert len(again) == 2
    again.close()


def test_a_closed_buffer_gives_nothing_that_the_next_process_would_give_again(tmp_path: Path) -> None:
    buffer = NestBuffer(QUEUE, of="nest", folder=tmp_path)
    buffer.push_many([1, 2, 3], push_id="a/1")
    taken = buffer.take(1)
    buffer.close()
    assert buffer.take(1) == []
    assert buffer.sample(1) is None
    with pytest.raises(errors.Unreachable, match="given back is lost"):
        buffer.give_back(taken)
    again = NestBuffer(QUEUE, of="nest", folder=tmp_path)
    assert numbers(again.take(2)) == [2, 3]
    again.close()
