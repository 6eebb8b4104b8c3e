"""One process at a time has a trial's folder."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ludus.errors import ProgramError
from ludus.experiment.claim import claimed

from . import runs


def hold(folder: str, ready: str) -> None:
    """Hold it until killed, and leave a child behind that lives on for a while."""
    with claimed(Path(folder)):
        if os.fork() == 0:
            threading.Event().wait(10.0)
            os._exit(0)
        Path(ready).touch()
        threading.Event().wait()


def test_who_has_it_keeps_others_out_until_he_lets_go(tmp_path: Path) -> None:
    with claimed(tmp_path / "monday"), pytest.raises(ProgramError, match="'monday' is running"):  # noqa: SIM117
        with claimed(tmp_path / "monday"):
            pass
    with claimed(tmp_path / "monday"):
        pass


def test_one_that_is_killed_has_let_go_even_if_a_child_of_it_lives_on(tmp_path: Path) -> None:
    folder, ready = tmp_path / "monday", tmp_path / "ready"
    holder = runs.start(hold, str(folder), str(ready))
    runs.wait_until(ready.exists)
    with pytest.raises(ProgramError), claimed(folder):
        pass
    runs.kill(holder)
    with claimed(folder):
        pass


def test_of_many_that_come_at_once_one_has_it_though_the_folder_comes_and_goes(tmp_path: Path) -> None:
    folder = tmp_path / "monday"
    inside: list[int] = []
    most: list[int] = []

    def come() -> None:
        for _ in range(200):
            try:
                with claimed(folder):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
                    (folder / ".lock").unlink()
                    with contextlib.suppress(OSError):  # the next is in it already
                        folder.rmdir()
            except ProgramError:
                continue

    with ThreadPoolExecutor(4) as pool:
        for coming in [pool.submit(come) for _ in range(4)]:
            coming.result(20)
    assert max(most) == 1
