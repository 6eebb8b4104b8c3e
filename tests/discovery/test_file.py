from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus import errors
from ludus.discovery import file
from ludus.discovery.file import FileNames, FileStore
from ludus.discovery.store import Record


@pytest.fixture
def names(tmp_path: Path) -> Iterator[FileNames]:
    names = FileNames(tmp_path)
    yield names
    names.close()


@pytest.mark.parametrize("content", [b"", b'{"value": "1", "own', b"\xff\x00", b"[]", b'{"other": 1}'])
def test_a_torn_or_foreign_record_is_absent_with_one_warning_and_can_be_written_over(
    names: FileNames, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    names.add("a/b", "1")
    names.add("a/c", "2")
    (tmp_path / "a" / "b" / "@").write_bytes(content)
    for _ in range(3):
        assert names.find_subtree("a") == ["a/c"]
    with pytest.raises(errors.NameNotFound):
        names.get("a/b")
    assert len(caplog.records) == 1
    assert "not a record of a name" in caplog.text
    names.add("a/b", "3")
    assert names.get("a/b") == "3"


def test_a_record_is_replaced_whole(names: FileNames, tmp_path: Path) -> None:
    """A reader of the old one, which may be in the midst of it, does not see half of the new one."""
    names.add("a", "old")
    with open(tmp_path / "a" / "@", "rb") as reader:
        before = os.pread(reader.fileno(), 1000, 0)
        names.add("a", "new", replace=True)
        assert os.pread(reader.fileno(), 1000, 0) == before
    assert names.get("a") == "new"


def test_files_of_others_are_left_alone(names: FileNames, tmp_path: Path) -> None:
    names.add("a/b", "1")
    (tmp_path / "a" / "notes.txt").write_text("mine")
    (tmp_path / ".snapshot" / "a").mkdir(parents=True)
    (tmp_path / ".snapshot" / "a" / "@").write_text("old")
    assert names.find_subtree("a") == ["a/b"]
    names.clear_subtree("a")
    assert (tmp_path / "a" / "notes.txt").read_text() == "mine"


def test_what_a_writer_left_when_it_was_killed_does_no_harm(names: FileNames, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "@.part").write_bytes(b'{"value": "half')
    assert names.find_subtree("a") == []
    names.add("a", "1")
    assert names.get("a") == "1"
    names.delete("a")
    assert sorted(os.listdir(tmp_path)) == [".lock"], "and folders that are empty are removed"


def test_a_lock_that_is_held_for_too_long_is_a_discovery_error(
    names: FileNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "_LOCK_TIMEOUT_S", 0.05)
    names.add("a", "1")
    with (tmp_path / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(errors.DiscoveryError, match="another process has held"):
            names.add("b", "1")
        assert names.get("a") == "1", "readers need no lock"


def test_a_folder_that_cannot_be_is_a_discovery_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    names = FileNames(tmp_path / "taken")
    with pytest.raises(errors.DiscoveryError, match="out of reach"):
        names.add("a", "1")


def test_leases_are_judged_by_the_file_servers_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is an hour behind this host: its times are on the files, and on the lock that is touched."""
    real_utime, behind = os.utime, 3600.0

    def utime_by_server(path: str | Path | int) -> None:
        real_utime(path, (time.time() - behind, time.time() - behind))

    monkeypatch.setattr(os, "utime", utime_by_server)
    store = FileStore(tmp_path)
    lease = Record(value="1", owner="x", ttl=5.0)
    store.put("a", lease, replace=False)
    store.put("a", lease, replace=False)  # renewed, so that the time on it is the server's
    assert store.get("a") == "1"
    assert FileStore(tmp_path).get("a") == "1"
    real_utime(tmp_path / "a" / "@", (time.time() - behind - 6, time.time() - behind - 6))
    assert store.get("a") is None
    assert store.read("a") == {}
    assert store.put("a", Record(value="2", owner="y"), replace=False)
