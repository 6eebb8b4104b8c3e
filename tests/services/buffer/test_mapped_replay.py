"""Columns that others read while they are written, and that are opened again after a kill at any moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import errors
from ludus.services.buffer.mapped_replay import ColumnReader, MappedReplay
from ludus.services.buffer.table import TableSettings

from .replay_rows import SPEC, numbers_of, rows


class Killed(Exception):
    pass


def die_at(replay: MappedReplay, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise instead of the so many-th write of columns: 0 marks the rows, 1 writes them, 2 says that they are whole."""
    write = replay._columns.write
    calls = iter(range(3))

    def dying(start: int, arrays: Any) -> None:
        if next(calls) == step:
            if step == 1:  # some of it is written
                write(start, {name: array[:1] for name, array in arrays.items()})
            raise Killed
        write(start, arrays)

    monkeypatch.setattr(replay._columns, "write", dying)


def open_one(folder: Path) -> MappedReplay:
    return MappedReplay(SPEC, TableSettings(), num_slots=8, folder=folder, persist=True)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_an_insert_that_was_not_finished_did_not_happen(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = open_one(tmp_path)
    replay.insert(rows(*range(6)), insert_id="a/1")
    die_at(replay, step, monkeypatch)
    with pytest.raises(Killed):
        replay.insert(rows(6, 7, 8, 9), insert_id="a/2")  # which needs the slots of 0 and 1
    again = open_one(tmp_path)
    assert again.num_items == 6
    assert again.has_inserted("a/1")
    assert not again.has_inserted("a/2")
    left = again.table.keys()
    assert set(left.tolist()) >= {2, 3, 4, 5}
    batch, is_there = again.gather(left)
    assert is_there.all()
    assert numbers_of(batch) == left.tolist(), "a key is its row's number here"
    again.insert(rows(6, 7, 8, 9), insert_id="a/2")
    assert again.table.keys().tolist() == list(range(2, 10))
    assert numbers_of(again.gather(again.table.keys())[0]) == list(range(2, 10))
    assert again.has_inserted("a/2")


def test_a_reader_takes_no_row_that_is_being_written_for_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = open_one(tmp_path)
    replay.insert(rows(*range(8)))
    reader = ColumnReader.open(tmp_path, replay.token, touch=True)
    assert reader is not None
    out = {name: leaf.allocate((4,)) for name, leaf in SPEC.items()}
    assert reader.gather(np.array([0, 1, 2, 7]), out).tolist() == [True] * 4
    assert numbers_of(out) == [0, 1, 2, 7]
    die_at(replay, 1, monkeypatch)
    with pytest.raises(Killed):
        replay.insert(rows(8, 9))
    assert reader.gather(np.array([0, 1, 2, 8]), out).tolist() == [False, False, True, False]
    reader.close()


def test_large_samples_are_copied_by_two_threads_and_are_the_same(tmp_path: Path) -> None:
    replay = MappedReplay(SPEC, num_slots=1000, folder=tmp_path)
    replay.insert(rows(*range(1000)))
    reader = ColumnReader.open(tmp_path, replay.token)
    assert reader is not None
    keys = np.random.default_rng(0).integers(0, 1000, 999)
    out = {name: leaf.allocate((999,)) for name, leaf in SPEC.items()}
    assert reader.gather(keys, out).all()
    assert numbers_of(out) == keys.tolist()
    reader.close()
    reader.close()


def test_columns_of_another_service_are_not_read(tmp_path: Path) -> None:
    replay = MappedReplay(SPEC, num_slots=8, folder=tmp_path)
    assert ColumnReader.open(tmp_path, "another") is None
    assert ColumnReader.open(tmp_path / "nowhere", replay.token) is None
    with pytest.raises(errors.ConfigError, match="at least one"):
        MappedReplay({}, num_slots=8, folder=tmp_path / "x")


@pytest.mark.parametrize("name", ["num_items.map", "table-key.map", "table-counters.map", "columns.json"])
@pytest.mark.parametrize("left", [None, 0, 5])
def test_a_file_that_is_torn_or_gone_is_noticed_and_the_others_are_not_touched(
    tmp_path: Path, name: str, left: int | None
) -> None:
    replay = open_one(tmp_path)
    replay.insert(rows(*range(6)), insert_id="a/1")
    replay.close()
    content = (tmp_path / name).read_bytes()
    if left is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content[:left])
    with pytest.raises(errors.DataError, match="othing was opened"):
        open_one(tmp_path)
    (tmp_path / name).write_bytes(content)
    again = open_one(tmp_path)
    assert again.table.keys().tolist() == list(range(6))
    assert numbers_of(again.gather(np.arange(6))[0]) == list(range(6))
    again.close()


@pytest.mark.parametrize(
    "batch",
    [None, [1], {"number": 1, "obs": 2, "done": 3}, {**rows(1, 2), "done": [[True], [True, False]]}, {"number": "abc"}],
)
def test_what_are_no_rows_is_refused(tmp_path: Path, batch: Any) -> None:
    replay = open_one(tmp_path)
    with pytest.raises(errors.DataError, match="nothing was inserted"):
        replay.check(batch, None)
    replay.close()


def test_negative_keys_are_of_no_item(tmp_path: Path) -> None:
    replay = open_one(tmp_path)
    replay.insert(rows(1))
    assert replay.gather(np.array([-1, 0, -8]))[1].tolist() == [False, True, False]
    replay.close()
