from __future__ import annotations

import ast
import os
import re
import stat
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus import files
from ludus.experiment.checkpoints import CheckpointStore
from ludus.gateway.journal import Journal
from ludus.gateway.used_signatures import UsedSignatures
from ludus.models.versions.store import VersionStore


class Calls:
    """What the module asks of the system, in order: the syncs by what they sync, the renames by their targets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        fsync, replace = os.fsync, os.replace

        def note_fsync(fd: int) -> None:
            self.made.append("sync folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else f"sync {os.fstat(fd).st_size}")
            fsync(fd)

        def note_replace(source: Any, target: Any) -> None:
            self.made.append(f"rename to {Path(target).name}")
            replace(source, target)

        monkeypatch.setattr(os, "fsync", note_fsync)
        monkeypatch.setattr(os, "replace", note_replace)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def test_content_is_synced_before_it_gets_its_name_and_the_name_after(tmp_path: Path, calls: Calls) -> None:
    files.replace(tmp_path / "x", [b"abc", b"de"])
    assert calls.made == ["sync 5", "rename to x", "sync folder"]
    assert (tmp_path / "x").read_bytes() == b"abcde"


def test_what_need_not_survive_a_power_cut_is_not_synced_but_still_renamed(tmp_path: Path, calls: Calls) -> None:
    files.replace(tmp_path / "x", [b"abc"], durable=False)
    assert calls.made == ["rename to x"]


def test_a_new_folder_is_synced_into_its_parent_and_one_that_is_there_costs_nothing(
    tmp_path: Path, calls: Calls
) -> None:
    files.make_folder(tmp_path / "a" / "b")
    assert calls.made == ["sync folder", "sync folder"]
    files.make_folder(tmp_path / "a" / "b")
    files.make_folder(tmp_path / "c", durable=False)
    assert len(calls.made) == 2
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        files.make_folder(tmp_path / "file")


def test_the_first_checkpoint_and_the_first_version_sync_the_folders_that_they_make(
    tmp_path: Path, calls: Calls
) -> None:
    CheckpointStore(tmp_path / "checkpoints").save(1, {})
    assert calls.made[0] == "sync folder"  # into the trial's folder; what follows is the file's own
    calls.made.clear()
    VersionStore(tmp_path / "models").publish("policy", {"w": np.zeros(1, np.float32)}, number=0)
    assert calls.made[:2] == ["sync folder", "sync folder"]


def test_a_file_that_gets_another_name_is_synced_into_its_folder(tmp_path: Path, calls: Calls) -> None:
    (tmp_path / "new").write_bytes(b"x")
    files.move(tmp_path / "new", tmp_path / "x")
    assert calls.made == ["rename to x", "sync folder"]


def test_the_next_segment_of_a_journal_is_synced_and_then_its_name(tmp_path: Path, calls: Calls) -> None:
    journal = Journal(tmp_path / "journal", segment_bytes=1000)
    calls.made.clear()
    until = time.monotonic() + 60.0
    while "sync folder" not in calls.made and time.monotonic() < until:
        if "rename to journal" not in calls.made:
            journal.began("s", "r")
            journal.ended("s", "asked")
        time.sleep(0.001)
    journal.close()
    assert re.fullmatch(r"sync \d+", calls.made[0])
    assert calls.made[1:] == ["rename to journal", "sync folder"]


def test_an_appended_line_is_synced_and_once_the_name_of_its_file(tmp_path: Path, calls: Calls) -> None:
    files.append_line(tmp_path / "x", b"one")
    files.append_line(tmp_path / "x", b"two")
    assert calls.made == ["sync 4", "sync folder", "sync 8"]
    assert (tmp_path / "x").read_bytes() == b"one\ntwo\n"


def test_a_line_that_was_cut_off_is_not_continued_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"one\ntw")
    files.append_line(tmp_path / "x", b"three")
    assert (tmp_path / "x").read_bytes() == b"one\ntw\nthree\n"


def test_a_lock_is_free_at_its_end_though_a_child_forked_before_has_its_descriptor(tmp_path: Path) -> None:
    with files.lock(tmp_path / "lock") as fd:
        of_child = os.dup(fd)  # of the same open file, as a fork's is
    try:
        with files.lock(tmp_path / "lock", timeout_s=0.0):
            pass
    finally:
        os.close(of_child)


def test_used_signatures_are_synced_when_their_file_is_written_again(tmp_path: Path, calls: Calls) -> None:
    UsedSignatures(60.0, now=lambda: 100.0, path=tmp_path / "0.spent").close()
    assert calls.made == ["sync 0", "rename to 0.spent", "sync folder"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    files.replace(tmp_path / "x", [b"old"])

    def parts() -> Any:
        yield b"new"
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        files.replace(tmp_path / "x", parts())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"old"}


def test_a_private_file_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    replace = os.replace

    def look(source: Any, target: Any) -> None:
        modes.append(stat.S_IMODE(os.stat(source).st_mode))
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    files.replace(tmp_path / "x", [b"secret"], mode=files.PRIVATE)
    assert modes == [0o600]


def test_threads_that_replace_one_file_do_not_meet(tmp_path: Path) -> None:
    contents = [bytes([number]) * 1000 for number in range(4)]
    failed: list[BaseException] = []

    def write(content: bytes) -> None:
        try:
            for _ in range(10):
                files.replace(tmp_path / "x", [content], durable=False)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert (tmp_path / "x").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_only_the_leftovers_of_that_name_are_removed(tmp_path: Path) -> None:
    for name in (".x.4711-0.part", ".y.4711-0.part"):
        (tmp_path / name).write_bytes(b"half")
    files.remove_parts(tmp_path, "x")
    assert [path.name for path in tmp_path.iterdir()] == [".y.4711-0.part"]
    files.remove_parts(tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_other_module_renames_files_into_place() -> None:
    """So that none can forget a sync."""
    source = Path(ludus.__file__).parent
    found = []
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if not is_call:
                continue
            on_os = isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
            if node.func.attr in ("write_text", "write_bytes", "fsync", "fdatasync", "rename") or (
                on_os and node.func.attr == "replace"
            ):
                found.append(f"{path.relative_to(source)}: {node.func.attr}")
    folders = {"services/buffer/column_folder.py: rename"}  # of a folder, in memory: nothing is to be synced
    assert set(found) == {"files.py: fsync", "files.py: replace", *folders}


def test_a_folder_that_is_a_link_to_nowhere_is_refused_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "trial").symlink_to(tmp_path / "gone")
    with pytest.raises(FileExistsError), files.hold(tmp_path / "trial" / ".lock", refusal="held"):
        pass


def test_json_that_somebody_else_wrote_is_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a": 1}')
    assert files.read_json(path) == {"a": 1}
    for content in (b"[" * 100_000, b"\xff\xfe\x00", b"", b'{"a": '):
        path.write_bytes(content)
        with pytest.raises(ValueError):
            files.read_json(path)
    path.write_bytes(b"[1, 2]")
    monkeypatch.setattr(files, "_MAX_JSON_BYTES", 5)
    with pytest.raises(ValueError, match="longer than 5 bytes"):
        files.read_json(path)


def test_a_fifo_or_a_folder_is_not_opened_as_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "."):
        with pytest.raises(OSError, match="not a regular file"):
            files.open_regular(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        files.read_json(tmp_path / "nothing")
