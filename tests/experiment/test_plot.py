from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from ludus import errors
from ludus.experiment import plot as plots
from ludus.telemetry.metrics_file import MetricsWriter

pytest.importorskip("matplotlib")


def _trial(folder: Path, *, lag: bool = False, pace: bool = True, evaluated: bool = True) -> Path:
    with MetricsWriter(folder) as metrics:
        for step in range(100, 5100, 100):
            values = {"episode/return": step / 10, "train/loss": 0.1}
            values |= {"time/steps_per_second": 9000.0} if pace else {}
            values |= {"lag/mean": 1.5} if lag else {}
            values |= {"eval/return": step / 9} if evaluated and step % 1000 == 0 else {}
            metrics.write(step, values)
    return folder


def _size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def test_one_trial_is_drawn_with_its_speed_below(tmp_path: Path) -> None:
    path = plots.plot([_trial(tmp_path / "monday")], tmp_path / "curves" / "one.png")
    assert path == tmp_path / "curves" / "one.png"
    assert _size(path)[1] > 900


def test_several_trials_are_drawn_into_one_picture(tmp_path: Path) -> None:
    folders = [_trial(tmp_path / "a" / "same"), _trial(tmp_path / "b" / "same", lag=True)]
    assert _size(plots.plot(folders, tmp_path / "two.png"))[0] > 1000


def test_without_speed_there_is_one_panel(tmp_path: Path) -> None:
    assert _size(plots.plot([_trial(tmp_path / "monday", pace=False)], tmp_path / "one.png"))[1] < 800


def test_a_trial_without_returns_is_refused_by_name(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "monday") as metrics:
        metrics.write(1, {"train/loss": 0.1, "episode/return": float("nan")})
    with pytest.raises(errors.TrainingError, match=r"monday.*no episode has ended"):
        plots.plot([tmp_path / "monday"], tmp_path / "one.png")


def test_metrics_that_are_named_are_drawn_each_in_a_panel(tmp_path: Path) -> None:
    folders = [_trial(tmp_path / name) for name in ("monday", "tuesday")]
    one = plots.plot(folders[:1], tmp_path / "one.png", metrics=["train/loss"])
    two = plots.plot(folders, tmp_path / "two.png", metrics=["train/loss", "episode/return"])
    assert _size(one)[1] < _size(two)[1]


def test_a_metric_that_is_not_there_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(errors.TrainingError, match=r"no metric 'train/los'. Did you mean 'train/loss'"):
        plots.plot([_trial(tmp_path / "monday")], tmp_path / "one.png", metrics=["train/los"])


def test_the_axis_is_steps_or_seconds_as_the_last_lines_have_it(tmp_path: Path) -> None:
    with MetricsWriter(_trial(tmp_path / "monday"), is_loop=False) as metrics:
        metrics.write_by_seconds({"gateway/steps": 3.0})
    for name, label in (("gateway/steps", "seconds since the trial began"), ("train/loss", "environment steps")):
        path = plots.plot([tmp_path / "monday"], tmp_path / "one.svg", metrics=[name])
        assert f"<!-- {label} -->" in path.read_text()


def test_trials_that_kept_what_was_merged_in_a_folder_of_its_own_are_drawn(tmp_path: Path) -> None:
    folder = _trial(tmp_path / "monday")
    (folder / "merged").mkdir()
    (folder / "merged" / "metrics.jsonl").write_text('{"step": 10, "time": 1.0, "wall_s": 1.0, "points": 2.0}\n')
    _size(plots.plot([folder], tmp_path / "one.png", metrics=["points"]))


def test_a_single_point_is_enough(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "monday") as metrics:
        metrics.write(1, {"episode/return": 5.0})
    _size(plots.plot([tmp_path / "monday"], tmp_path / "one.png"))


def test_smoothing_keeps_a_straight_line_straight_to_its_ends() -> None:
    line = np.linspace(3.0, 9.0, 101)
    np.testing.assert_allclose(plots._smooth(line), line)
