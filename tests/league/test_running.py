"""What the driver of a league writes of its processes."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

import pytest

from ludus.league import api, running
from ludus.telemetry.metrics_file import METRICS_FILE, read_metrics
from ludus.trial.metrics import TrialMetrics

from .games import GAME, SMALL


def test_reports_of_learners_and_simulators_are_joined_as_what_they_are() -> None:
    shared = {"time/train": 0.8, "time/steps_per_second": 100.0, "league/evaluation_games": 0.0, "step": 7.0}
    learners = [
        {**shared, "train/loss/main": 0.5, "lag/mean": 1.0, "lag/max": 2.0},
        {**shared, "time/train": 0.2, "lag/mean": 3.0, "lag/max": 5.0},
        {"step": 9.0},  # it has just been started again
    ]
    simulator = {"steps_per_second": 60.0, "games_per_second": 10.0, "time/idle": 0.25, "league/evaluation_games": 4.0}
    assert running.metrics_of(learners, [simulator, {**simulator, "time/idle": 0.75}, {}]) == {
        "train/loss/main": 0.5,
        "time/train": 0.5,
        "time/steps_per_second": 200.0,
        "lag/mean": 2.0,
        "lag/max": 5.0,
        "league/evaluation_games": 8.0,
        "simulator/steps_per_second": 120.0,
        "simulator/games_per_second": 20.0,
        "simulator/time/idle": 0.5,
    }
    assert running.metrics_of([]) == {}


def test_a_league_in_one_process_writes_its_stages_its_matches_and_that_nothing_lags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "TrialMetrics", functools.partial(TrialMetrics, period_s=0.01))
    monkeypatch.setattr(running, "_METRICS_EVERY_S", 0.0)
    run = api.league(GAME, algorithm="ppo", project=str(tmp_path), steps=600, **SMALL)
    lines = read_metrics(run.trial_dir)
    assert max(line.get("league/matches_per_second", 0.0) for line in lines) > 0.0
    values = lines[-1]
    shares = [values[f"time/{part}"] for part in ("play", "train", "publish", "evaluate")]
    assert all(0.0 < share < 1.0 for share in shares)
    assert sum(shares) <= 1.0
    assert values["time/steps_per_second"] > 0.0
    assert values["lag/mean"] == values["lag/max"] == 0.0
    api.resume(run.trial_dir, settings={"steps": 900})
    steps = [line["step"] for line in read_metrics(run.trial_dir)]
    assert steps[: len(lines)] == [line["step"] for line in lines], "what it wrote before stays"
    assert steps[-1] >= 900
    assert steps == sorted(steps)


def test_metrics_that_cannot_be_written_do_not_end_a_league(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_METRICS_EVERY_S", 0.0)
    (tmp_path / METRICS_FILE).mkdir()
    shown: list[int] = []
    with contextlib.closing(TrialMetrics(tmp_path, is_loops=True)) as written:
        progress = running._Progress(tmp_path, written, lambda step, _: shown.append(step))
        progress.report(1, lambda: {"time/train": 1.0})
        progress.report(2, lambda: {"time/train": 1.0})
    assert shown == [1, 2]
