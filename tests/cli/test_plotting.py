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


@pytest.mark.parametrize(("name", "start"), [("a.svg", b"<?xml"), ("a.PDF", b"%PDF"), ("a.png", b"\x89PNG")])
def test_its_ending_says_in_which_format_it_is(name: str, start: bytes, tmp_path: Path) -> None:
    assert main(["plot", str(make_trial(tmp_path / "monday")), "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["a.xyz", "a"])
def test_another_ending_is_refused_with_those_there_are(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", str(make_trial(tmp_path / "monday")), "--out", str(tmp_path / name)]) == 2
    assert ".png, .svg, .pdf" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_a_misspelt_trial_is_answered_with_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_trial(tmp_path / "monday")
    assert main(["plot", "mondey", "--project", str(tmp_path)]) == 2
    assert "Did you mean 'monday'?" in capsys.readouterr().err
