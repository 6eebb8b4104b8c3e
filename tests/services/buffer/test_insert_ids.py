from __future__ import annotations

import os
from pathlib import Path

import pytest

from ludus.services.buffer.insert_ids import InsertIds


def test_an_insert_is_seen_by_the_next_process_if_its_items_were_committed(tmp_path: Path) -> None:
    path = tmp_path / "inserts"
    ids = InsertIds(path)
    ids.prepare("a/1", 0, 3)
    ids.add("a/1")
    ids.prepare("a/2", 3, 3)  # and then it was killed
    assert "a/1" in ids
    assert "a/2" not in ids
    assert "a/2" not in InsertIds(path, num_items=5)
    ids.prepare("a/2", 3, 3)
    again = InsertIds(path, num_items=6)
    assert "a/1" in again
    assert "a/3" not in again


def test_the_file_stays_small_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "inserts"
    ids = InsertIds(path, max_bytes=1000)
    for number in range(1, 3001):
        ids.prepare(f"a/{number}", number, 1)
        ids.add(f"a/{number}")
    assert path.stat().st_size < 100_000
    with path.open("ab") as file:
        file.write(b"00000000 1 a/9999")
    again = InsertIds(path, num_items=3001)
    assert all(f"a/{number}" in again for number in (1, 2999, 3000))
    assert "a/3001" not in again
    assert "a/9999" not in again
    again.close()
    again.close()


def test_a_line_that_does_not_fit_on_a_full_disk_does_not_spoil_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "inserts"
    ids = InsertIds(path)
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, line: write(fd, line[:7]))
        with pytest.raises(OSError, match="No space left"):
            ids.prepare("a/1", 0, 1)
    ids.prepare("a/2", 0, 1)
    ids.add("a/2")
    again = InsertIds(path, num_items=1)
    assert "a/2" in again
    assert "a/1" not in InsertIds(path, num_items=0)
