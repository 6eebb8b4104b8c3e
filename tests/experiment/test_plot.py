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


def test_a_single_point_is_enough(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "monday") as metrics:
        metrics.write(1, {"episode/return": 5.0})
    _size(plots.plot([tmp_path / "monday"], tmp_path / "one.png"))


def test_smoothing_keeps_a_straight_line_straight_to_its_ends() -> None:
    line = np.linspace(3.0, 9.0, 101)
    np.testing.assert_allclose(plots._smooth(line), line)
