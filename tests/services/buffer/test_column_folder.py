"""Shared memory of a service: private, removed in the end, and found when its owner was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ludus.services.buffer.column_folder import ColumnFolder, remove_abandoned

OWNER = """
import sys
from pathlib import Path
from ludus.services.buffer.column_folder import ColumnFolder
folder = ColumnFolder.make(100, shared_memory=Path(sys.argv[1]))
(folder.path / "data").write_bytes(b"x" * 100)
print(folder.path, flush=True)
sys.stdin.read()
"""


def test_it_is_there_until_it_is_closed(tmp_path: Path) -> None:
    folder = ColumnFolder.make(100, shared_memory=tmp_path)
    assert folder.path.is_relative_to(tmp_path)
    assert folder.path.stat().st_mode & 0o077 == 0, "others cannot read it"
    assert remove_abandoned(tmp_path) == 0
    folder.close()
    folder.close()
    assert not folder.path.exists()


def test_that_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    start = [sys.executable, "-c", OWNER, str(tmp_path)]
    owners = [subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = [Path(owner.stdout.readline().strip()) for owner in owners if owner.stdout is not None]
    owners[0].kill()
    owners[0].wait()
    assert paths[0].exists()
    mine = ColumnFolder.make(100, shared_memory=tmp_path)
    assert not paths[0].exists()
    assert paths[1].exists()
    mine.close()
    owners[1].kill()
    for owner in owners:
        owner.communicate()
    assert remove_abandoned(tmp_path) == 1


def test_without_room_in_memory_it_is_elsewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trial = tmp_path / "trial"
    for missing in (tmp_path / "nowhere", tmp_path):
        folder = ColumnFolder.make(1 << 60, otherwise=trial, shared_memory=missing)
        assert folder.path.is_relative_to(trial)
        assert "has no room" in caplog.text
        folder.close()
        assert not folder.path.exists()
