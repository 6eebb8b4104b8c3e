"""One finder for every command: by name, by path, with the nearest name for a typo."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiment.trial_folders import make_trial
from ludus import errors
from ludus.cli.main import main
from ludus.program.folder import TrialFolder, TrialRecord
from ludus.trial.find import find, find_all


def make_script_trial(folder: Path) -> Path:
    """What `ludus.init` leaves, without a config."""
    made = TrialFolder.create(folder.parent, folder.name)
    made.save(TrialRecord.own(folder, experiment="ludus", names_url="memory://", engine="local"))
    made.mark_ended("stopped")
    return folder


def test_a_trial_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    trained, script = make_trial(tmp_path / "monday"), make_script_trial(tmp_path / "tuesday")
    for folder in (trained, script):
        assert find(folder.name, project=tmp_path).path == folder
        assert find(folder).path == folder
    assert find("monday", project=tmp_path, trained=True).path == trained


def test_a_name_in_the_project_goes_before_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_trial(tmp_path / "monday")
    inside = make_trial(tmp_path / "trials" / "monday")
    monkeypatch.chdir(tmp_path)
    assert find("monday").path == inside
    assert find("./monday").path == inside
    assert find(tmp_path / "monday").path == tmp_path / "monday"


def test_a_typo_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    make_trial(tmp_path / "monday")
    make_script_trial(tmp_path / "sunday")
    (tmp_path / "something else").mkdir()
    for trained in (False, True):
        with pytest.raises(errors.ProgramError, match=r"there is no trial 'mondey' in .*Did you mean 'monday'"):
            find("mondey", project=tmp_path, trained=trained)
    with pytest.raises(errors.ProgramError, match="There are none"):
        find("monday", project=tmp_path / "nowhere")
    with pytest.raises(errors.ProgramError, match="Did you mean 'sunday'"):
        find("sundae", project=tmp_path)


def test_a_trial_that_was_not_trained_is_not_said_to_be_missing(tmp_path: Path) -> None:
    make_script_trial(tmp_path / "monday")
    with pytest.raises(errors.ProgramError, match=r"'monday' in .* was not made by `ludus train`"):
        find("monday", project=tmp_path, trained=True)


def test_trials_are_listed_oldest_first(tmp_path: Path) -> None:
    for age, name in enumerate(("tuesday", "monday", "sunday")):
        folder = make_trial(tmp_path / name)
        os.utime(folder / "config.json", (1e9 - age, 1e9 - age))
    make_script_trial(tmp_path / "newest")
    assert [folder.path.name for folder in find_all(tmp_path, trained=True)] == ["sunday", "monday", "tuesday"]
    assert [folder.path.name for folder in find_all(tmp_path)] == ["sunday", "monday", "tuesday", "newest"]


@pytest.mark.parametrize(
    "words",
    [["resume"], ["evaluate"], ["watch"], ["plot"], ["serve"], ["promote"], ["rollback"], ["ctl", "list"]],
    ids=lambda words: words[0],
)
def test_every_command_says_the_same_of_a_misspelt_trial(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_trial(tmp_path / "monday")
    command, *more = words
    assert main([command, "mondey", *more, "--project", str(tmp_path)]) == 2
    assert f"there is no trial 'mondey' in {tmp_path}. Did you mean 'monday'?" in capsys.readouterr().err
