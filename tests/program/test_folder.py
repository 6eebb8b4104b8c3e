from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ludus import errors
from ludus.program.folder import TrialFolder, TrialRecord
from ludus.program.process import process_start


def make_trial(*, pid: int | None = None, **fields: Any) -> TrialRecord:
    return TrialRecord(
        experiment="demo",
        trial="monday",
        names_url="memory://x",
        engine="local",
        driver_pid=pid or os.getpid(),
        driver_host=os.uname().nodename,
        **fields,
    )


def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_trials_without_a_name_get_folders_of_their_own(tmp_path: Path) -> None:
    folders = {TrialFolder.create(tmp_path, None).path for _ in range(3)}
    assert len(folders) == 3
    assert all((path / "logs").is_dir() for path in folders)


@pytest.mark.parametrize("name", ["", "a/b", "/tmp/x", ".."])
def test_a_trial_is_one_folder_below_its_project(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.ProgramError, match="cannot name a trial"):
        TrialFolder.create(tmp_path, name)


def test_what_is_secret_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    folder = TrialFolder.create(tmp_path, "monday")
    folder.save(make_trial(secret="hush"))
    assert stat.S_IMODE((folder.path / "trial.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder.path / "workers").stat().st_mode) == 0o700
    assert folder.load().secret == "hush"


def test_a_running_trial_is_not_taken_over(tmp_path: Path) -> None:
    folder = TrialFolder.create(tmp_path, "monday")
    folder.save(make_trial())
    with pytest.raises(errors.ProgramError, match=f"process {os.getpid()}"):
        TrialFolder.create(tmp_path, "monday")


def test_a_trial_that_has_ended_or_lost_its_driver_can_be_taken_up(tmp_path: Path) -> None:
    folder = TrialFolder.create(tmp_path, "monday")
    folder.save(make_trial())
    folder.mark_ended("stopped")
    assert not folder.load().is_live
    TrialFolder.create(tmp_path, "monday").save(make_trial(pid=dead_pid()))
    assert not folder.load().is_live
    TrialFolder.create(tmp_path, "monday")


def test_a_broken_trial_file_is_said_to_be_broken(tmp_path: Path) -> None:
    folder = TrialFolder.create(tmp_path, "monday")
    (folder.path / "trial.json").write_text(json.dumps({"experiment": "demo"}))
    with pytest.raises(errors.ProgramError, match="cannot be read"):
        folder.load()


def test_a_later_process_with_the_id_of_the_driver_is_not_the_driver(tmp_path: Path) -> None:
    folder = TrialFolder.create(tmp_path, "monday")
    start = process_start(os.getpid())
    assert start is not None
    folder.save(make_trial(driver_start=start))
    assert folder.load().is_live
    folder.save(make_trial(driver_start=start - 1))
    assert not folder.load().is_live
    TrialFolder.create(tmp_path, "monday")  # it can be taken up
