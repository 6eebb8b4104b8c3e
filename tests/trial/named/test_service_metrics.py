"""What gateways, models, buffers and a training loop's workers count is in the one metrics file of their trial."""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from torch import nn

import ludus
from ludus import errors
from ludus.cli import main as cli
from ludus.experiment.sent_metrics import SentMetrics
from ludus.gateway.client import GameClient
from ludus.telemetry.metrics import Windows
from ludus.telemetry.metrics_file import axis_of, read_metrics
from ludus.training import api as training
from ludus.trial import current as trials
from ludus.trial.metrics import TrialMetrics

from .counting_worker import Counting
from .drivers import wait_until

WAIT_S = 60.0


class Player(ludus.Actor):
    """Each tick asks the model; the end pushes what was seen."""

    def __init__(self, model: str, buffer: str, *, local_mode: bool = False) -> None:
        self.model = ludus.RemoteModel(model, local_mode=local_mode)
        self.buffer = ludus.RemoteBuffer(buffer)
        self.seen: list[Any] = []

    async def tick(self, data: bytes) -> bytes:
        self.seen.append(await self.model.forward(np.frombuffer(data, np.float32)))
        return b"left"

    async def end(self, data: bytes, reason: str = "") -> None:
        await self.buffer.push_async({"seen": np.stack(self.seen)})


def play(url: str, session: str, num_ticks: int = 5) -> None:
    game = GameClient(url, session, retries=50)
    game.start()
    for _ in range(num_ticks):
        assert game.tick(np.ones(4, np.float32).tobytes()) == b"left"
    game.end()


def page(url: str) -> dict[tuple[str, ...], float]:
    """`/metrics`: sums over workers by name and labels."""
    found: dict[tuple[str, ...], float] = {}
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            for sample in family.samples:
                key = (sample.name, *(value for name, value in sorted(sample.labels.items()) if name != "worker"))
                found[key] = found.get(key, 0.0) + sample.value
    return found


def last(folder: Path, name: str) -> float:
    values = [line[name] for line in read_metrics(folder) if name in line]
    return float(values[-1]) if values else -1.0


def wait_for(trial: trials.Trial, name: str, value: float) -> None:
    """Without the ten seconds between two lines."""
    until = time.monotonic() + WAIT_S
    while last(trial.folder, name) != value:
        assert time.monotonic() < until, f"{name} is {last(trial.folder, name)}"
        time.sleep(0.1)
        trial.driver.metrics.flush()


def events(folder: Path) -> dict[str, list[float]]:
    """What TensorBoard makes of the trial's events."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    seen = accumulators.EventAccumulator(str(folder / "events"), size_guidance={"scalars": 0})
    seen.Reload()
    return {tag: [event.value for event in seen.Scalars(tag)] for tag in seen.Tags()["scalars"]}


def test_what_gateway_model_and_buffer_count_is_written_and_agrees_with_their_own_pages(
    trial: trials.Trial, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model = ludus.RemoteModel("policy", nn.Linear(4, 2), forward_args=(np.zeros(4, np.float32),))
    buffer = ludus.RemoteBuffer("items")
    actor = ludus.RemoteActor(num_workers=2)
    actor.serve(Actor=Player, model="policy", buffer="items")
    for number in range(4):
        play(actor.url, f"game-{number}")
    wait_until(lambda: last(trial.folder, "gateway/sessions_ended/asked") == 4.0, WAIT_S)
    shown, kernel = page(actor.url), model.statistics()
    folder = trial.folder
    for kind, number in (("start", 4), ("tick", 20), ("end", 4)):  # on a busy machine games ask again
        assert last(folder, f"gateway/steps/{kind}/ok") == shown["ludus_steps_total", "ok", kind] >= number
    assert last(folder, "gateway/sessions_started") == shown[("ludus_sessions_started_total",)] == 4
    assert last(folder, "gateway/sessions") == shown[("ludus_sessions",)] == 0
    assert 0.0 < last(folder, "gateway/step_s/p50") <= last(folder, "gateway/step_s/p99")
    assert max(line.get("gateway/steps_per_second", 0.0) for line in read_metrics(folder)) > 0.0
    assert last(folder, "model/policy/calls") == kernel["num_calls"] == 20
    assert last(folder, "model/policy/forwards") == kernel["num_batches"]
    assert last(folder, "model/policy/batch_rows") >= 1.0
    assert last(folder, "buffer/items/pushed") == buffer.statistics()["num_pushed"] == 4
    assert last(folder, "buffer/items/size") == 4
    assert last(folder, f"worker/{actor.node}/live") == 2
    assert {axis_of(line) for line in read_metrics(folder)} == {"seconds"}
    trial.close()
    seen = events(folder)
    for name in ("gateway/steps/tick/ok", "gateway/step_s/p95", "model/policy/rows_per_second", "buffer/items/size"):
        assert seen[name] == pytest.approx([line[name] for line in read_metrics(folder) if name in line], rel=1e-6)
    pytest.importorskip("matplotlib")
    named = ["--metric", "gateway/steps/tick/ok", "--metric", "gateway/step_s/p95"]
    assert cli.main(["plot", "t", "--project", str(tmp_path), *named]) == 0
    assert Path(capsys.readouterr().out.strip()) == folder / "metrics.png"
    assert (folder / "metrics.png").read_bytes().startswith(b"\x89PNG")


def test_a_model_that_actors_run_themselves_is_counted_too_and_so_are_restarts(trial: trials.Trial) -> None:
    ludus.RemoteModel("policy", nn.Linear(4, 2), forward_args=(np.zeros(4, np.float32),), local_mode=True)
    actor = ludus.RemoteActor()
    actor.serve(Actor=Player, model="policy", buffer="items", local_mode=True)
    play(actor.url, "first")
    wait_for(trial, "model/policy/calls", 5.0)
    (record,) = [one for one in trial.workers() if one.name.startswith("actor-")]
    assert record.pid is not None
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: any(one.restarts for one in trial.workers()), WAIT_S)
    play(actor.url, "second", 3)
    wait_for(trial, "model/policy/calls", 8.0)
    assert last(trial.folder, "gateway/steps/tick/ok") >= 8.0, "the restarted worker has started at 0"
    assert last(trial.folder, f"worker/{actor.node}/restarts") == 1.0


def test_an_idle_trial_writes_next_to_nothing(trial: trials.Trial) -> None:
    metrics = trial.driver.metrics
    ludus.RemoteModel("policy", nn.Linear(4, 2), forward_args=(np.zeros(4, np.float32),))
    ludus.RemoteBuffer("items")
    actor = ludus.RemoteActor()
    actor.serve(Actor=Player, model="policy", buffer="items")
    play(actor.url, "only")
    wait_for(trial, "gateway/sessions_ended/asked", 1.0)
    for _ in range(2):  # the second writes that all rates are 0
        metrics.flush()
    size = (trial.folder / "metrics.jsonl").stat().st_size
    for _ in range(50):  # as in more than eight minutes
        page(actor.url)
        metrics.flush()
    assert (trial.folder / "metrics.jsonl").stat().st_size == size


def test_workers_of_ones_own_may_count(trial: trials.Trial) -> None:
    program = ludus.Program("ludus")
    program.add("referee", Counting, replicas=2)
    trial.run(program)
    wait_for(trial, "worker/referee/games", 6.0)


# --- a loop


def rows(name: str, value: float) -> list[Any]:
    windows = Windows()
    windows.add(name, value, desc=None, labels={})
    return windows.rows()


def loop(name: str, resume_step: int | None = None) -> dict[str, Any]:
    return {"id": name, "resume_step": resume_step, "age_s": 0.0}


def test_metrics_inside_a_run_take_the_steps_of_its_loop_and_seconds_without_it(tmp_path: Path) -> None:
    metrics = TrialMetrics(tmp_path, period_s=3600.0)
    metrics.join(rows("points", 1.0))
    metrics.flush()
    metrics.write_loop(loop("a"), [(100, {"train/loss": 0.5})])
    metrics.join(rows("points", 2.0))
    metrics.flush()
    metrics.write_loop(loop("a"), [(200, {"train/loss": 0.4}), (300, {"train/loss": 0.3})])
    metrics.end_loop("a")
    metrics.join(rows("points", 3.0))
    metrics.close()
    lines = read_metrics(tmp_path)
    assert [(axis_of(line), line.get("points"), line.get("train/loss")) for line in lines] == [
        ("seconds", 1.0, None),
        ("steps", None, 0.5),
        ("steps", 2.0, 0.4),
        ("steps", None, 0.3),
        ("seconds", 3.0, None),
    ]
    assert [line["step"] for line in lines if axis_of(line) == "steps"] == [100, 200, 300]


def test_a_loop_that_is_resumed_drops_its_later_steps_and_keeps_what_is_by_seconds(tmp_path: Path) -> None:
    for name, resume_step, steps in (("a", None, (100, 200, 300)), ("b", 200, (300, 400))):
        metrics = TrialMetrics(tmp_path)
        metrics.join(rows("served", 1.0))
        metrics.flush()
        metrics.write_loop(loop(name, resume_step), [(step, {name: 1.0}) for step in steps])
        metrics.close()
    lines = read_metrics(tmp_path)
    assert sum("served" in line for line in lines) == 2
    assert [(line["step"], "a" in line) for line in lines if axis_of(line) == "steps"] == [
        (100, True),
        (200, True),
        (300, False),
        (400, False),
    ]


def test_a_trial_that_is_there_for_a_loop_writes_nothing_before_it(tmp_path: Path) -> None:
    metrics = TrialMetrics(tmp_path, is_loops=True)
    metrics.watch(lambda: {"model/policy/calls": 1.0})
    metrics.flush()
    assert read_metrics(tmp_path) == []
    metrics.write_loop(loop("a"), [(100, {"train/loss": 0.5})])
    metrics.close()
    assert [line["step"] for line in read_metrics(tmp_path)] == [100]


def test_what_comes_after_the_end_does_not_touch_what_is_written(tmp_path: Path) -> None:
    metrics = TrialMetrics(tmp_path, is_loops=True)
    metrics.write_loop(loop("a"), [(100, {"train/loss": 0.5})])
    metrics.close()
    windows = Windows()
    windows.add("late", 1.0, desc={}, labels={})
    metrics.join(windows.rows())
    metrics.write_loop(loop("a"), [(200, {"train/loss": 0.4})])
    metrics.close()
    assert [line["step"] for line in read_metrics(tmp_path)] == [100]


def test_the_lines_of_a_loop_in_another_process_are_written_by_the_driver_in_their_order(trial: trials.Trial) -> None:
    sent = SentMetrics(trial.folder)
    for step in range(1000):
        sent.write(step, {"train/loss": float(step)})
    with pytest.raises(errors.ConfigError, match="cannot be named 'step'"):
        sent.write(1000, {"step": 1.0})
    sent.close()
    sent.close()
    ludus.merge("points", 1.0)
    trial.close()
    *lines, after = read_metrics(trial.folder)
    assert [(line["step"], line["train/loss"]) for line in lines] == [(step, step) for step in range(1000)]
    assert (after["points"], axis_of(after)) == (1.0, "seconds"), "the loop has ended"


def test_metrics_that_cannot_be_written_end_nothing_and_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = TrialMetrics(tmp_path)
    metrics.write_loop(loop("a"), [(1, {"x": 1.0})])
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, content: write(fd, content[:20]))
        metrics.write_loop(loop("a"), [(2, {"x": 1.0}), (3, {"x": 1.0})])
    metrics.write_loop(loop("a"), [(4, {"x": 1.0})])
    metrics.close()
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 4]
    assert [record.getMessage().split()[:2] for record in caplog.records] == [
        ["metrics", "could"],
        ["metrics", "are"],
    ]


def test_a_run_that_is_spread_has_what_its_inference_workers_and_buffer_count_also_when_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "spread"

    def has_grown(since: float) -> Callable[[], bool]:
        return lambda: last(folder, "model/policy/forwards") > since

    settings = {"simulators": 1, "inference": 1, "project": str(tmp_path), "trial": "spread"}
    with pytest.raises(KeyboardInterrupt):
        training.train("appo", "CartPole-v1", steps=10_000_000, on_progress=_until(has_grown(0.0)), **settings)
    assert last(folder, "model/policy/rows") >= last(folder, "model/policy/forwards") > 0
    assert last(folder, "buffer/policy/pushed") >= last(folder, "buffer/policy/taken") > 0
    for node in ("inference", "simulator", "trainer"):
        assert (last(folder, f"worker/{node}/live"), last(folder, f"worker/{node}/restarts")) == (1.0, 0.0)
    num_lines = len(read_metrics(folder))
    with pytest.raises(KeyboardInterrupt):
        training.resume(folder, on_progress=_until(lambda: len(read_metrics(folder)) > num_lines + 5))
    lines = read_metrics(folder)
    assert {axis_of(line) for line in lines} == {"steps"}
    assert [line["step"] for line in lines] == sorted({line["step"] for line in lines}), "one line for each step"
    assert events(folder)["model/policy/forwards"] == [
        line["model/policy/forwards"] for line in lines if "model/policy/forwards" in line
    ]


def _until(is_so: Callable[[], bool]) -> Callable[[int, dict[str, float]], None]:
    until = time.monotonic() + WAIT_S

    def stop(step: int, values: dict[str, float]) -> None:
        if is_so():
            raise KeyboardInterrupt
        assert time.monotonic() < until, "it never came to be"

    return stop
