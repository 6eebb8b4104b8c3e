from __future__ import annotations

import ast
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus import files


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
            if path.is_relative_to(source / "gateway"):  # its journals are appended to, which is a matter of their own
                continue
            on_os = isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
            if node.func.attr in ("write_text", "write_bytes", "fsync", "rename") or (
                on_os and node.func.attr == "replace"
            ):
                found.append(f"{path.relative_to(source)}: {node.func.attr}")
    assert set(found) == {"files.py: fsync", "files.py: replace"}


def test_a_folder_that_is_a_link_to_nowhere_is_refused_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "trial").symlink_to(tmp_path / "gone")
    with pytest.raises(FileExistsError), files.hold(tmp_path / "trial" / ".lock", refusal="held"):
        pass
