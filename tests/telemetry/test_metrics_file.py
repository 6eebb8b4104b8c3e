"""Metrics on real files, events read back by TensorBoard itself."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ludus import errors
from ludus.telemetry.metrics import RESERVED
from ludus.telemetry.metrics_file import MetricsWriter, axis_of, read_last_metrics, read_metrics


def _events(folder: Path, name: str = "events") -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard makes of the trial's events."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    seen = accumulators.EventAccumulator(str(folder / name), size_guidance={"scalars": 0})
    seen.Reload()
    return {tag: [(event.step, event.value) for event in seen.Scalars(tag)] for tag in seen.Tags()["scalars"]}


def test_a_line_has_the_step_two_times_and_the_values(tmp_path: Path) -> None:
    clock = iter([100.0, 101.5])
    with MetricsWriter(tmp_path, clock=lambda: next(clock)) as metrics:
        metrics.write(2048, {"train/loss": 0.125, "episode/return": np.float32(22)})
    (line,) = [json.loads(text) for text in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert line.pop("time") > 1.7e9
    assert line == {"step": 2048, "wall_s": 1.5, "train/loss": 0.125, "episode/return": 22.0}


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as metrics:
        for step in range(0, 100_000, 1000):
            metrics.write(step, {"train/loss": 1 / (step + 1), "wörld/größe": -step, "large": 1e300})
    seen = _events(tmp_path)
    assert [step for step, _ in seen["train/loss"]] == list(range(0, 100_000, 1000))
    assert seen["train/loss"][3][1] == pytest.approx(1 / 3001)
    assert seen["wörld/größe"][-1] == (99_000, -99_000.0)
    assert seen["large"][0][1] == math.inf


def test_steps_of_more_than_32_bits_are_kept(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(10**12, {"loss": 1.0})
    assert read_metrics(tmp_path)[0]["step"] == 10**12
    assert _events(tmp_path)["loss"] == [(10**12, 1.0)]


def test_what_is_not_finite_is_null_and_named(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(1, {"loss": math.nan, "norm": math.inf, "good": 1.0})
    (line,) = read_metrics(tmp_path)
    assert line["loss"] is None
    assert line["norm"] is None
    assert line["good"] == 1.0
    assert line["not_finite"] == ["loss", "norm"]
    assert math.isnan(_events(tmp_path)["loss"][0][1])


def test_a_metric_may_not_take_the_name_of_a_lines_own_field(tmp_path: Path) -> None:
    for name in RESERVED:
        with MetricsWriter(tmp_path) as metrics, pytest.raises(errors.ConfigError, match=f"cannot be named '{name}'"):
            metrics.write(1, {name: 1.0})


def test_writing_after_the_end_is_an_error(tmp_path: Path) -> None:
    metrics = MetricsWriter(tmp_path)
    metrics.close()
    metrics.close()
    with pytest.raises(errors.TrainingError, match="closed"):
        metrics.write(1, {"loss": 1.0})


def test_after_a_resume_no_step_is_there_twice(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as metrics:
        for step in (10, 20, 30, 40):
            metrics.write(step, {"loss": float(step)})
    with MetricsWriter(tmp_path, resume_step=20) as metrics:
        for step in (30, 40, 50):
            metrics.write(step, {"loss": -float(step)})
    assert [line["loss"] for line in read_metrics(tmp_path)] == [10, 20, -30, -40, -50]
    assert _events(tmp_path)["loss"] == [(10, 10), (20, 20), (30, -30), (40, -40), (50, -50)]


def test_a_trial_that_starts_again_leaves_nothing_of_the_old_one(tmp_path: Path) -> None:
    for sign in (1.0, -1.0):
        with MetricsWriter(tmp_path) as metrics:
            metrics.write(0, {"loss": sign})
            metrics.write(5, {"loss": sign})
    assert [line["loss"] for line in read_metrics(tmp_path)] == [-1.0, -1.0]
    assert _events(tmp_path)["loss"] == [(0, -1.0), (5, -1.0)]


def test_resuming_at_step_0_keeps_step_0(tmp_path: Path) -> None:
    for resume_step in (None, 0):
        with MetricsWriter(tmp_path, resume_step=resume_step) as metrics:
            metrics.write(0 if resume_step is None else 1, {"loss": 1.0})
    assert _events(tmp_path)["loss"] == [(0, 1.0), (1, 1.0)]


def test_a_resume_drops_later_steps_and_never_what_is_by_seconds(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    times = iter(float(second) for second in range(0, 100_000, 1000))
    with MetricsWriter(tmp_path) as metrics:
        for step in (10, 20, 30):
            metrics.write(step, {"loss": float(step)})
    with MetricsWriter(tmp_path, is_loop=False, clock=lambda: next(times)) as metrics:  # it is served
        for value in (1.0, 2.0):
            metrics.write_by_seconds({"gateway/steps": value})
    with MetricsWriter(tmp_path, resume_step=20) as metrics:
        metrics.write(30, {"loss": -30.0})
    with MetricsWriter(tmp_path, is_loop=False) as metrics:  # and served again
        metrics.write_by_seconds({"gateway/steps": 3.0})
    lines = read_metrics(tmp_path)
    assert [line["loss"] for line in lines if axis_of(line) == "steps"] == [10, 20, -30]
    by_seconds = [line for line in lines if axis_of(line) == "seconds"]
    assert [line["gateway/steps"] for line in by_seconds] == [1, 2, 3]
    assert by_seconds[1]["step"] < by_seconds[2]["step"], "its seconds go on"
    assert by_seconds[1]["step"] > 30, "later than the step that the loop went on from"
    assert _events(tmp_path) == {"loss": [(10, 10.0), (20, 20.0), (30, -30.0)]}
    seen = _events(tmp_path, "events/seconds")
    assert [value for _, value in seen["gateway/steps"]] == [1, 2, 3]


def test_a_loop_that_begins_in_the_trial_of_a_script_keeps_what_is_by_seconds(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        with MetricsWriter(tmp_path, is_loop=False) as metrics:
            metrics.write_by_seconds({"gateway/steps": value})
    assert [value for _, value in _events(tmp_path)["gateway/steps"]] == [1, 2]
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(0, {"loss": 0.5})
    assert [line.get("gateway/steps") for line in read_metrics(tmp_path)] == [1, 2, None]
    assert _events(tmp_path) == {"loss": [(0, 0.5)]}
    assert [value for _, value in _events(tmp_path, "events/seconds")["gateway/steps"]] == [1, 2]


def test_lines_by_seconds_go_on_after_those_that_were_not_marked_and_after_a_torn_one(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 70, "wall_s": 70.5, "loss": 1.0}\n{"step": 80, "lo')
    with MetricsWriter(tmp_path, is_loop=False) as metrics:
        metrics.write_by_seconds({"loss": 2.0})
    first, second = read_metrics(tmp_path)
    assert (first["step"], second["step"]) == (70, 71)
    assert second["wall_s"] >= 70.5


def test_the_last_lines_by_steps_are_found_behind_many_by_seconds(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(10, {"episode/return": 5.0})
    with MetricsWriter(tmp_path, is_loop=False) as metrics:
        for _ in range(2000):
            metrics.write_by_seconds({"gateway/steps": 1.0})
    assert [line["episode/return"] for line in read_last_metrics(tmp_path)] == [5.0]


def test_wall_time_goes_on_where_it_stopped(tmp_path: Path) -> None:
    times = iter([0.0, 5.0, 9.0, 1000.0, 1001.0])
    with MetricsWriter(tmp_path, clock=lambda: next(times)) as metrics:
        metrics.write(1, {"loss": 1.0})
        metrics.write(2, {"loss": 1.0})
    with MetricsWriter(tmp_path, resume_step=1, age_s=0.5, clock=lambda: next(times)) as metrics:
        metrics.write(2, {"loss": 1.0})
    assert [line["wall_s"] for line in read_metrics(tmp_path)] == [5.0, 6.5]


def test_a_torn_last_line_is_left_out_and_does_not_swallow_the_next(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(1, {"loss": 1.0})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "lo')
    assert [line["step"] for line in read_metrics(tmp_path)] == [1]
    with MetricsWriter(tmp_path, resume_step=1) as metrics:
        metrics.write(2, {"loss": 1.0})
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2]


def test_a_line_that_a_full_disk_cut_off_does_not_swallow_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(1, {"loss": 1.0})
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda fd, content: write(fd, content[:20]))
            with pytest.raises(OSError, match="No space left"):
                metrics.write(2, {"loss": 1.0})
        metrics.write(3, {"loss": 1.0})
        metrics.write(4, {"loss": 1.0})
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 3, 4]


def test_a_trial_without_metrics_has_none(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    assert read_last_metrics(tmp_path) == []


def test_the_last_lines_of_a_long_trial_are_read_without_the_rest(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as metrics:
        for step in range(3000):
            metrics.write(step, {"loss": 1.0})
    last = read_last_metrics(tmp_path)
    assert last[-1]["step"] == 2999
    assert 100 < len(last) < 3000
    assert last == read_metrics(tmp_path)[-len(last) :]


_WRITE_UNTIL_KILLED = """
import os, signal, sys
from pathlib import Path
from ludus.telemetry.metrics_file import MetricsWriter
metrics = MetricsWriter(Path(sys.argv[1]))
for step in range(50):
    metrics.write(step, {"loss": 1.0})
print(sorted({"numpy", "tensorboard", "torch", "rich"} & set(sys.modules)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_nothing_that_was_written_and_nothing_heavy_is_imported(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _WRITE_UNTIL_KILLED, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.strip() == "[]"
    assert [line["step"] for line in read_metrics(tmp_path)] == list(range(50))
    assert len(_events(tmp_path)["loss"]) == 50
