from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ludus.data.spec import ArraySpec
from ludus.errors import DataError
from ludus.services.buffer.columns import Columns

SPEC = {"obs/a": ArraySpec((2,), np.float32), "n": ArraySpec((), np.int64), "none": ArraySpec((0,), np.float32)}


def rows(start: int, num: int) -> dict[str, np.ndarray]:
    number = np.arange(start, start + num)
    return {"obs/a": np.stack([number, -number], 1).astype(np.float32), "n": number, "none": np.zeros((num, 0))}


@pytest.mark.parametrize("is_mapped", [False, True])
def test_items_are_written_around_the_end_of_the_ring(is_mapped: bool, tmp_path: Path) -> None:
    columns = Columns(SPEC, 10, folder=tmp_path / "c" if is_mapped else None)
    for start in range(0, 35, 7):
        columns.write(start, rows(start, 7))
    keys = np.arange(25, 35)
    batch = columns.take(["obs/a", "n"], keys % 10)
    assert batch["n"].tolist() == keys.tolist()
    assert batch["obs/a"].tolist() == rows(25, 10)["obs/a"].tolist()


def test_items_are_taken_into_arrays_that_are_there() -> None:
    columns = Columns(SPEC, 10)
    columns.write(0, rows(0, 10))
    out = {"n": np.zeros(3, np.int64)}
    batch = columns.take(["n"], np.array([3, 1, 9]), out=out)
    assert batch["n"] is out["n"]
    assert out["n"].tolist() == [3, 1, 9]


def test_a_folder_is_opened_again_with_all_that_was_written(tmp_path: Path) -> None:
    columns = Columns(SPEC, 10, folder=tmp_path / "c", extra={"of": "x"})
    columns.write(0, rows(0, 10))
    again = Columns.open(tmp_path / "c")
    assert (again.num_slots, again.extra) == (10, {"of": "x"})
    assert again.spec == columns.spec
    assert again.arrays["n"].tolist() == list(range(10))
    again.write(0, rows(50, 1))
    assert columns.arrays["n"][0] == 50  # the same memory
    reader = Columns.open(tmp_path / "c", readonly=True)
    with pytest.raises(ValueError, match="read-only"):
        reader.write(0, rows(0, 1))


def test_a_folder_is_not_made_over_another(tmp_path: Path) -> None:
    Columns(SPEC, 10, folder=tmp_path)
    with pytest.raises(DataError, match="has columns already"):
        Columns(SPEC, 10, folder=tmp_path)


def test_folders_that_are_torn_or_foreign_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there are no columns"):
        Columns.open(tmp_path)
    columns = Columns(SPEC, 10, folder=tmp_path)
    description = tmp_path / "columns.json"
    whole = description.read_text()
    for damaged in ("", "[]", "{}", whole.replace('"format": 1', '"format": 2'), whole.replace("<f4", "<q9")):
        description.write_text(damaged)
        with pytest.raises(DataError, match=r"othing was opened"):
            Columns.open(tmp_path)
    description.write_text(whole.replace('"num_slots": 10', '"num_slots": 11'))
    with pytest.raises(DataError, match="bytes instead of"):
        Columns.open(tmp_path)
    description.write_text(whole)
    assert json.loads(whole)["num_slots"] == columns.num_slots
    next(tmp_path.glob("001-*")).unlink()
    with pytest.raises(DataError, match="is missing"):
        Columns.open(tmp_path)


def test_no_room_is_noticed_before_anything_is_stored(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no room for columns of .* MB .*nothing was stored"):
        Columns({"n": ArraySpec((), np.int64)}, 2**59, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
