from __future__ import annotations

from pathlib import Path

import pytest

from experiment.trial_folders import make_trial
from ludus.cli.main import main

pytest.importorskip("matplotlib")


def test_the_curve_goes_into_the_trials_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_trial(tmp_path / "monday")
    assert main(["plot", "monday", "--project", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "learning_curve.png")
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_several_go_into_one_file_that_must_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plot", *(str(make_trial(tmp_path / name)) for name in ("monday", "tuesday"))]
    assert main(words) == 2
    assert "say which with --out" in capsys.readouterr().err
    assert main([*words, "--out", str(tmp_path / "both.png")]) == 0
    assert (tmp_path / "both.png").exists()


def test_a_misspelt_trial_is_answered_with_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_trial(tmp_path / "monday")
    assert main(["plot", "mondey", "--project", str(tmp_path)]) == 2
    assert "Did you mean 'monday'?" in capsys.readouterr().err
