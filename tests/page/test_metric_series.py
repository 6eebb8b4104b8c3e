"""Metrics files as series of bounded length, read on while they grow."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from ludus.page.charts import Series, line_chart
from ludus.page.metric_series import MAX_BUCKETS, MetricFiles, Metrics, MetricSeries
from ludus.telemetry.metrics_file import METRICS_FILE, MetricsWriter


def fill(path: Path, num: int, *, begin: int = 0) -> None:
    with open(path, "a") as file:
        for step in range(begin, begin + num):
            file.write(json.dumps({"step": step, "time": 1e9 + step, "wall_s": step / 10, "a": math.sin(step)}) + "\n")


def test_a_short_series_has_every_point() -> None:
    series = MetricSeries()
    for step in range(MAX_BUCKETS - 1):
        series.add(step, step / 2, step**2)
    assert series.points("steps") == [(step, step**2) for step in range(MAX_BUCKETS - 1)]
    assert series.points("seconds")[3] == (1.5, 9)
    assert series.means("steps") == series.points("steps")


def test_a_long_series_is_bounded_and_keeps_its_extremes_and_its_end() -> None:
    series = MetricSeries()
    for step in range(100_000):
        series.add(step, step, {40_001: 9.0, 70_002: -9.0}.get(step, step % 7 / 7))
    points = series.points("steps")
    assert len(points) <= 3 * MAX_BUCKETS + 3
    assert (40_001, 9.0) in points
    assert (70_002, -9.0) in points
    assert points[0][0] < 1000
    assert points[-1] == (99_999, 99_999 % 7 / 7)
    assert points == sorted(points, key=lambda point: point[0])
    assert all(abs(mean - 0.43) < 0.05 for x, mean in series.means("steps") if not 39e3 < x < 72e3)


def test_what_is_appended_is_read_on_and_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    path, metrics = tmp_path / METRICS_FILE, Metrics(tmp_path / METRICS_FILE)
    metrics.read()
    assert metrics.names() == []
    fill(path, 3)
    with open(path, "a") as file:
        file.write('{"step": 3, "ti')
    metrics.read()
    metrics.read()
    assert len(metrics.points("a", "steps")) == 3
    with open(path, "a") as file:
        file.write('me": 1, "wall_s": 1, "a": 5}\nnot a line\n[1]\n{"step": 4, "a": null, "wall_s": 2}\n')
    metrics.read()
    assert metrics.points("a", "steps")[-1] == (3, 5)
    assert (metrics.num_lines, metrics.num_damaged) == (5, 2)


def test_a_file_that_was_replaced_is_read_again_and_one_that_is_gone_stays_as_it_was(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as writer:
        for step in range(10):
            writer.write(step, {"a": step})
    metrics = Metrics(tmp_path / METRICS_FILE)
    metrics.read()
    with MetricsWriter(tmp_path, resume_step=4) as writer:
        writer.write(5, {"a": 50.0})
    metrics.read()
    assert [value for _, value in metrics.points("a", "steps")] == [0, 1, 2, 3, 4, 50]
    (tmp_path / METRICS_FILE).unlink()
    metrics.read()
    assert len(metrics.points("a", "steps")) == 6


def test_lines_that_no_writer_of_ours_makes_are_counted_and_left_out(tmp_path: Path) -> None:
    lines = [
        "[" * 100_000,
        '{"step": 1, "a": %s}' % ("9" * 400),
        "[]",
        '{"step": 2, "a": 1e308}',
        '{"step": 3, "a": 5}',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.read()
    assert (metrics.num_damaged, metrics.num_lines) == (3, 2)
    assert "5" in str(line_chart([Series("a", metrics.points("a", "steps"))], title="", x_name="", y_name=""))


def test_what_is_recent_is_the_last_values_however_long_the_run(tmp_path: Path) -> None:
    series = MetricSeries()
    for step in range(100_000):
        series.add(step, float(step), 0.0 if step < 99_990 else float(step - 99_990))
    assert series.recent() == pytest.approx(5.5)
    assert series.rate() == pytest.approx(1.0)


def test_lines_by_seconds_are_series_of_their_own(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path, is_loop=False) as writer:
        writer.write_by_seconds({"gateway/steps": 5})
    metrics = Metrics(tmp_path / METRICS_FILE)
    metrics.read()
    assert metrics.names("seconds") == ["gateway/steps"]
    assert metrics.names() == []


def test_a_long_file_is_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    fill(path, 20_000)
    metrics = Metrics(path)
    hurried = iter(range(1000))
    metrics.read(clock=lambda: float(next(hurried)))
    assert metrics.is_behind
    assert 0.0 < metrics.share_read < 1.0
    while metrics.is_behind:
        metrics.read(clock=lambda: float(next(hurried)))
    assert metrics.num_lines == 20_000


def test_names_are_bounded_and_so_are_trials(tmp_path: Path) -> None:
    files = MetricFiles()
    for number in range(20):
        folder = tmp_path / str(number)
        with MetricsWriter(folder) as writer:
            writer.write(1, {f"a/{each}": 1.0 for each in range(500)})
        assert files.use(folder, lambda metrics: (len(metrics.names()), metrics.num_left_out)) == (400, 100)
    assert len(files._kept) == 12
