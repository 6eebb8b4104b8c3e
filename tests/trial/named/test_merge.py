"""`merge`: metrics of many processes become one, in TensorBoard and in metrics.jsonl."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus import errors
from ludus.telemetry.metrics import RESERVED, Window, Windows
from ludus.telemetry.metrics_file import MetricsWriter, axis_of, read_last_metrics, read_metrics
from ludus.trial import current as trials
from ludus.trial.metrics import TrialMetrics
from ludus.trial.named import merge as merging

from .drivers import finish, start

DESC = {"time_window_sum": "all", "time_window_cnt": "how many"}
MERGE = """
import sys, ludus
ludus.init(sys.argv[1], "t")
for value in range(100):
    ludus.merge("return", value, desc={"time_window_avg": "mean", "time_window_cnt": "how many"}, game=sys.argv[2])
"""


def written(folder: Path) -> dict[str, Any]:
    (line,) = read_metrics(folder)
    return line


def test_metrics_of_all_processes_and_threads_are_joined(trial: trials.Trial, tmp_path: Path) -> None:
    others = [start(MERGE, tmp_path, game) for game in (1, 2)]
    threads = [
        threading.Thread(target=lambda: [ludus.merge("loss", 0.5, desc=DESC) for _ in range(5000)]) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    ludus.merge("loss", np.float32(1.0))
    for other in others:
        finish(other)
    trial.close()
    lines = read_metrics(trial.folder)
    assert sum(line.get("loss/sum", 0.0) for line in lines) == pytest.approx(15000 * 0.5 + 1.0)
    assert sum(line.get("loss/cnt", 0) for line in lines) == 15001
    assert sum(line.get("return/cnt", 0) for line in lines) == 200
    assert sum(line.get("return/cnt/game=2", 0) for line in lines) == 100
    assert [line["return/avg/game=1"] for line in lines if "return/avg/game=1" in line] == [49.5]
    words = json.loads((trial.folder / "metrics_descriptions.json").read_text())
    assert words == {"loss/sum": "all", "loss/cnt": "how many", "return/avg": "mean", "return/cnt": "how many"}


def test_tensorboard_reads_what_was_written(trial: trials.Trial) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    ludus.merge("loss", {"policy": 1.0, "value": 3.0}, rank=0)
    trial.close()
    events = accumulators.EventAccumulator(str(trial.folder / "events"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["loss/policy", "loss/policy/rank=0", "loss/value", "loss/value/rank=0"]
    assert [event.value for event in events.Scalars("loss/value")] == [3.0]


def test_the_first_metrics_are_there_after_a_few_seconds(trial: trials.Trial) -> None:
    ludus.merge("loss", 1.0)
    until = time.monotonic() + 10
    while not read_metrics(trial.folder):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert written(trial.folder)["loss"] == 1.0


def test_a_trial_that_is_taken_up_goes_on_with_its_seconds(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        with ludus.init(tmp_path, "t"):
            ludus.merge("loss", value)
    first, second = read_metrics(tmp_path / "t")
    assert (first["loss"], second["loss"]) == (1.0, 2.0)
    assert second["step"] > first["step"]


def test_in_the_folder_of_a_training_lines_by_seconds_follow_those_by_steps(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "config.json").write_text("{}")
    with MetricsWriter(tmp_path / "t") as metrics:
        metrics.write(1000, {"train/loss": 2.0})
    with ludus.init(tmp_path, "t"):
        ludus.merge("loss", 1.0)
    first, second = read_metrics(tmp_path / "t")
    assert (first["step"], axis_of(first)) == (1000, "steps")
    assert (second["loss"], axis_of(second)) == (1.0, "seconds")
    assert second["step"] < 60, "seconds since it was opened, whatever the steps are"
    assert read_last_metrics(tmp_path / "t") == [first], "what a table shows is of training"
    assert not (tmp_path / "t" / "merged").exists()


def test_a_call_is_cheap(trial: trials.Trial) -> None:
    ludus.merge("loss", 1.0)
    took = []
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(1000):
            ludus.merge("loss", 1.0, rank=0)
        took.append((time.perf_counter() - began) / 1000)
    assert min(took) < 10e-6, "5 microseconds, where nothing else runs"


def test_an_aggregate_that_is_none_is_answered_with_the_nearest() -> None:
    with pytest.raises(errors.ConfigError, match="Did you mean 'time_window_avg'"):
        ludus.merge("loss", 1.0, desc={"time_window_agv": "?"})
    with pytest.raises(errors.DataError, match="a metric is a number"):
        ludus.merge("loss", "much")  # type: ignore[arg-type]


def test_without_a_trial_it_says_so_and_keeps_nothing() -> None:
    with pytest.raises(errors.WorkerError, match=r"ludus\.init"):
        ludus.merge("loss", 1.0)
    assert merging._calls == []


def test_metrics_sent_while_the_driver_is_away_are_sent_when_it_is_back(
    trial: trials.Trial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send = trial.send_metrics
    is_away = True

    def send_or_not(rows: Any, *, timeout_s: float) -> None:
        if is_away:
            raise errors.Unreachable("no live replica of 'driver'; it was not run")
        send(rows, timeout_s=timeout_s)

    monkeypatch.setattr(trial, "send_metrics", send_or_not)
    for value in (1.0, 2.0):
        ludus.merge("loss", value, desc=DESC)
        merging.flush()
    assert "cannot be sent" in caplog.text
    is_away = False
    ludus.merge("loss", 4.0, desc=DESC)
    trial.close()
    lines = read_metrics(trial.folder)
    assert sum(line.get("loss/cnt", 0) for line in lines) == 3
    assert sum(line.get("loss/sum", 0.0) for line in lines) == 7.0


def test_the_names_of_a_lines_own_fields_are_refused_at_once(trial: trials.Trial) -> None:
    for name in RESERVED:
        with pytest.raises(errors.ConfigError, match=f"cannot be named '{name}'"):
            ludus.merge(name, 1.0)
        ludus.merge(name, {"inner": 2.0})
    trial.close()
    assert {written(trial.folder)[f"{name}/inner"] for name in RESERVED} == {2.0}


@pytest.mark.parametrize("name", [["a"], ("a", ["b"]), None, 3])
def test_a_name_that_is_no_text_is_refused_at_once(name: Any) -> None:
    with pytest.raises(errors.ConfigError, match="a name is a text"):
        ludus.merge(name, 1.0)


def test_a_metric_that_cannot_be_written_does_not_lose_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = TrialMetrics(tmp_path)
    windows = Windows()
    for name in ("loss", "step", "half \ud800 a character"):
        windows.add(name, 1.0, desc={"time_window_avg": 5} if name == "loss" else None, labels={})  # type: ignore[dict-item]
    for _ in range(2):
        metrics.join(windows.rows())
        metrics.flush()
    metrics.close()
    first, second = read_metrics(tmp_path)
    assert first["loss/avg"] == second["loss/avg"] == 1.0
    assert first["half ? a character"] == 1.0
    assert [record.getMessage() for record in caplog.records if "'step' is not written" in record.getMessage()] != []
    assert len(caplog.records) == 1, "logged once"


def test_a_label_that_cannot_be_spelled_loses_its_own_metric_only(trial: trials.Trial) -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    ludus.merge("bad", 1.0, who=Mute())
    ludus.merge("good", 2.0)
    trial.close()
    line = written(trial.folder)
    assert line["good"] == 2.0
    assert "bad" not in line


def test_the_spread_of_large_values_is_not_lost() -> None:
    values = np.random.default_rng(0).normal(size=900) + 1e9
    desc = {"time_window_std": ""}
    whole, parts = Windows(), Windows()
    for part in np.array_split(values, 3):
        one = Windows()
        for value in part:
            one.add("x", float(value), desc=desc, labels={})
            whole.add("x", float(value), desc=desc, labels={})
        parts.join(one.rows())
    for windows in (whole, parts):
        assert windows.scalars()["x/std"] == pytest.approx(values.std(), rel=1e-4)


def test_windows_that_were_joined_are_as_one() -> None:
    values = np.random.default_rng(0).normal(size=1000)
    desc = {f"time_window_{name}": "" for name in ("avg", "sum", "cnt", "min", "max", "std", "p50", "p95")}
    whole, parts = Windows(), Windows()
    for part in np.array_split(values, 7):
        one = Windows()
        for value in part:
            one.add("x", float(value), desc=desc, labels={})
            whole.add("x", float(value), desc=desc, labels={})
        parts.join(one.rows())
    joined, expected = parts.scalars(), whole.scalars()
    for name in ("avg", "sum", "cnt", "min", "max", "std"):
        assert joined[f"x/{name}"] == pytest.approx(expected[f"x/{name}"])
    assert joined["x/cnt"] == 1000
    assert joined["x/std"] == pytest.approx(values.std())
    for name, tolerance in (("p50", 0.2), ("p95", 0.4)):
        assert joined[f"x/{name}"] == pytest.approx(np.percentile(values, int(name[1:])), abs=tolerance)


def test_the_sample_of_a_window_is_bounded_and_fair() -> None:
    first, second = Window(), Window()
    for _ in range(9000):
        first.add(0.0, is_sampled=True)
    for _ in range(1000):
        second.add(1.0, is_sampled=True)
    first.join(second)
    assert len(first.samples) == 512
    assert 0.05 < np.mean(first.samples) < 0.16


def test_labels_of_ever_new_values_do_not_fill_the_memory() -> None:
    windows = Windows()
    for number in range(20_000):
        windows.add("x", 1.0, desc={"time_window_cnt": ""}, labels={"session": number})
    assert len(windows) <= 10_001
    assert windows.scalars()["x/cnt"] == 20_000


@pytest.mark.parametrize("gone", [errors.Unreachable, errors.Overloaded, errors.DiscoveryError])
def test_what_is_merged_while_the_driver_is_away_is_written_once_it_is_back(
    trial: trials.Trial, monkeypatch: pytest.MonkeyPatch, gone: type[Exception]
) -> None:
    send, num_away = trial.send_metrics, 2

    def send_when_back(rows: list[Any], *, timeout_s: float) -> None:
        nonlocal num_away
        if num_away:
            num_away -= 1
            raise gone("the driver is away")
        send(rows, timeout_s=timeout_s)

    monkeypatch.setattr(trial, "send_metrics", send_when_back)
    for value in (1.0, 2.0, 6.0):
        ludus.merge("loss", value, desc=DESC)
        merging.flush()
    trial.close()
    lines = read_metrics(trial.folder)
    assert sum(line.get("loss/cnt", 0) for line in lines) == 3
    assert sum(line.get("loss/sum", 0.0) for line in lines) == 9.0
