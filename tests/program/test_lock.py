"""One process at a time has a trial's folder."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from experiment import runs
from ludus.errors import ProgramError
from ludus.program.lock import LOCK_FILE, Phase, driving, find_holder


def hold(folder: str, ready: str) -> None:
    """Hold it until killed, and leave a child behind that lives on for a while."""
    with driving(Path(folder)):
        if os.fork() == 0:
            threading.Event().wait(10.0)
            os._exit(0)
        Path(ready).touch()
        threading.Event().wait()


def test_who_has_it_keeps_others_out_until_he_lets_go(tmp_path: Path) -> None:
    with driving(tmp_path / "monday"), pytest.raises(ProgramError, match="'monday' is running"):  # noqa: SIM117
        with driving(tmp_path / "monday"):
            pass
    with driving(tmp_path / "monday"):
        pass


def test_one_that_is_killed_has_let_go_even_if_a_child_of_it_lives_on(tmp_path: Path) -> None:
    folder, ready = tmp_path / "monday", tmp_path / "ready"
    holder = runs.start(hold, str(folder), str(ready))
    runs.wait_until(ready.exists)
    with pytest.raises(ProgramError), driving(folder):
        pass
    runs.kill(holder)
    with driving(folder):
        pass


def test_the_file_says_who_has_it_and_how_far_he_is(tmp_path: Path) -> None:
    folder = tmp_path / "monday"
    assert find_holder(folder) is None
    with driving(folder, phase=Phase.STARTING) as drive:
        for phase in (Phase.STARTING, Phase.DRIVING, Phase.ENDING):
            drive.mark(phase)
            holder = find_holder(folder)
            assert holder is not None
            assert (holder.pid, holder.phase) == (os.getpid(), phase)
    assert find_holder(folder) is None
    for damage in (b"", b"{", b"[]", b'{"pid": 1}'):
        (folder / LOCK_FILE).write_bytes(damage)
        assert find_holder(folder) is None


def test_a_killed_process_is_not_named_as_the_holder(tmp_path: Path) -> None:
    folder, ready = tmp_path / "monday", tmp_path / "ready"
    holder = runs.start(hold, str(folder), str(ready))
    runs.wait_until(ready.exists)
    found = find_holder(folder)
    assert found is not None
    assert (found.pid, found.phase) == (holder.pid, Phase.DRIVING)
    runs.kill(holder)
    assert (folder / LOCK_FILE).read_bytes(), "it could not clear it"
    assert find_holder(folder) is None


def test_of_many_that_come_at_once_one_has_it_though_the_folder_comes_and_goes(tmp_path: Path) -> None:
    folder = tmp_path / "monday"
    inside: list[int] = []
    most: list[int] = []

    def come() -> None:
        for _ in range(200):
            try:
                with driving(folder):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
                    (folder / LOCK_FILE).unlink()
                    with contextlib.suppress(OSError):  # the next is in it already
                        folder.rmdir()
            except ProgramError:
                continue

    with ThreadPoolExecutor(4) as pool:
        for coming in [pool.submit(come) for _ in range(4)]:
            coming.result(20)
    assert max(most) == 1
