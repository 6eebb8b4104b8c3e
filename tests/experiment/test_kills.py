"""Runs over many processes, of which some are killed: they finish, or go on where they were."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.telemetry.metrics_file import read_metrics
from ludus.training import api as training

from . import runs

pytestmark = pytest.mark.chaos
SMALL = {
    "num_envs": 4, "num_steps": 32, "num_epochs": 1, "seed": 3, "threads": 1, "eval_episodes": 2,
    "checkpoint_seconds": 0.1,
}  # fmt: skip
HANGING_ENV = """
import threading
import time
from pathlib import Path

import gymnasium

HERE = Path(__file__).parent


class Hanging(gymnasium.Wrapper):
    num_steps = 0

    def step(self, action):
        if not (HERE / "quick").exists():
            time.sleep(0.005)
        self.num_steps += 1
        if self.num_steps == 50 and not (HERE / "hung").exists():
            try:
                with (HERE / "hung").open("x") as file:
                    file.write(Path("/proc/self/cmdline").read_text())
            except FileExistsError:
                return super().step(action)
            threading.Event().wait()
        return super().step(action)


def make():
    return Hanging(gymnasium.make("CartPole-v1"))
"""


def killer(
    folder: Path, *victims: str, by: signal.Signals = signal.SIGKILL
) -> tuple[Callable[[int, dict[str, float]], None], list[str]]:
    """A callback that kills (or stops) one worker at each call and then has the envs hurry, and whom it has killed."""
    left, killed = list(victims), []

    def on_progress(step: int, values: dict[str, float]) -> None:
        if left:
            worker = left.pop(0)
            os.kill(runs.pid_of(folder, worker), by)
            killed.append(worker)
        if not left:
            runs.hurry(folder.parent)

    return on_progress, killed


@pytest.mark.parametrize(
    ("algorithm", "settings", "victims"),
    [
        ("appo", {"simulators": 2}, ("simulator/0", "simulator/1")),
        ("impala", {"simulators": 2, "inference": 1, "steps": 30_000}, ("inference/0", "simulator/1")),
        ("impala", {"simulators": 1, "inference": 2, "steps": 30_000}, ("inference/1", "inference/0")),
    ],
)
def test_async_goes_on_without_those_killed_and_counts_everything_once(
    tmp_path: Path, algorithm: str, settings: dict[str, Any], victims: tuple[str, ...]
) -> None:
    on_progress, killed = killer(tmp_path / "run", *victims)
    run = training.train(
        algorithm, runs.slow_cartpole(tmp_path), on_progress=on_progress, project=str(tmp_path), trial="run",
        batch_segments=2, **{**SMALL, "steps": 60_000, **settings},
    )  # fmt: skip
    assert killed == list(victims)
    assert run.result["steps"] >= settings.get("steps", 60_000)
    lines = [line for line in read_metrics(run.trial_dir) if "count/segments_pushed" in line]
    for line in lines:
        trained, stale, queued = (line[f"count/segments_{name}"] for name in ("trained", "stale", "queued"))
        assert trained + stale + queued == line["count/segments_pushed"]
        assert queued <= 4
        assert 0.0 <= line["lag/mean"] <= line["lag/max"] <= 16
        assert line["step"] <= trained * 4 * 32  # no segment's steps were counted twice
    assert max(line["lag/mean"] for line in lines) > 0.0  # they played on while the trainer learnt
    assert run.policy.num_steps == run.result["steps"]


def test_sync_waits_for_a_simulator_that_was_killed_and_goes_on(tmp_path: Path) -> None:
    on_progress, killed = killer(tmp_path / "run", "simulator/1")
    run = training.train(
        "ppo", runs.slow_cartpole(tmp_path), on_progress=on_progress, project=str(tmp_path), trial="run",
        **{**SMALL, "simulators": 2, "steps": 12_000},
    )  # fmt: skip
    assert killed == ["simulator/1"]
    assert run.result["steps"] >= 12_000
    assert max(line.get("count/simulators_lost", 0) for line in read_metrics(run.trial_dir)) >= 1


@pytest.mark.parametrize(
    ("algorithm", "settings", "victim"),
    [
        ("ppo", {"simulators": 2, "steps": 60_000}, "simulator/1"),
        ("impala", {"simulators": 1, "inference": 2, "steps": 15_000, "batch_segments": 2}, "inference/1"),
    ],
)
def test_a_stopped_worker_is_replaced_and_the_run_goes_on(
    tmp_path: Path, algorithm: str, settings: dict[str, Any], victim: str
) -> None:
    on_progress, stopped = killer(tmp_path / "run", victim, by=signal.SIGSTOP)
    run = training.train(
        algorithm, runs.slow_cartpole(tmp_path), on_progress=on_progress, project=str(tmp_path), trial="run",
        **{**SMALL, **settings},
    )  # fmt: skip
    assert stopped == [victim]
    assert run.result["steps"] >= settings["steps"]


def test_a_simulator_whose_env_blocks_for_ever_is_named_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "hanging.py").write_text(HANGING_ENV)
    hung: list[str] = []

    def on_progress(step: int, values: dict[str, float]) -> None:
        """The envs are slow until the log says who hung, so that the run does not end before."""
        hung[:] = re.findall(r"(simulator/\d) crashed: it was hung: its loop was in 'collect' for", caplog.text)
        if hung:
            (tmp_path / "quick").touch()

    run = training.train(
        "appo", f"{tmp_path / 'hanging.py'}:make", on_progress=on_progress, project=str(tmp_path), trial="run",
        **{**SMALL, "simulators": 2, "steps": 30_000, "hang_seconds": 3},
    )  # fmt: skip
    assert run.result["steps"] >= 30_000
    (worker,) = hung
    assert f"{worker.replace('/', '-')}.spec" in (tmp_path / "hung").read_text()
    assert "max_busy_s=3" in caplog.text
    assert "threading.Event().wait()" in caplog.text  # where it hung


def test_sync_over_simulators_is_exact_also_after_the_driver_was_killed(tmp_path: Path) -> None:
    settings, env = {**SMALL, "simulators": 2, "steps": 10_000, "project": str(tmp_path)}, runs.slow_cartpole(tmp_path)
    child = runs.start(runs.train, "ppo", env, {**settings, "trial": "killed"})
    runs.wait_until(lambda: runs.saved_step(tmp_path / "killed"))
    runs.kill(child)
    runs.wait_until(lambda: not runs.is_worked_on(tmp_path / "killed"))  # its workers notice, and leave
    assert not (tmp_path / "killed" / "result.json").exists()
    runs.hurry(tmp_path)
    resumed = training.resume("killed", project=str(tmp_path)).result
    whole = training.train("ppo", env, **settings, trial="whole").result
    assert resumed["weights_hash"] == whole["weights_hash"]
    assert resumed["steps"] == whole["steps"]


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("ppo", {"trainers": 2, "simulators": 2, "inference": 1, "steps": 8_000}),
        ("appo", {"simulators": 1, "steps": 20_000}),
    ],
)
def test_ctrl_c_lets_the_trainers_keep_what_they_have_and_says_how_to_go_on(
    tmp_path: Path, algorithm: str, settings: dict[str, Any]
) -> None:
    env = runs.slow_cartpole(tmp_path)
    words = ["train", algorithm, env, "--trial", "stopped", "--project", str(tmp_path)]
    given = {**SMALL, **settings, "checkpoint_seconds": 3600}
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    child = runs.start(runs.command, words, str(tmp_path / "said"))
    metrics = tmp_path / "stopped" / "metrics.jsonl"
    runs.wait_until(lambda: metrics.exists() and metrics.read_text())
    assert child.pid is not None
    os.kill(child.pid, signal.SIGINT)
    child.join(60)
    said = (tmp_path / "said").read_text()
    assert child.exitcode == 130, said
    assert "go on with: ludus resume stopped" in said
    assert 0 < runs.saved_step(tmp_path / "stopped") < given["steps"]
    runs.hurry(tmp_path)
    resumed = training.resume("stopped", project=str(tmp_path)).result
    assert resumed["steps"] >= given["steps"]
    if algorithm == "ppo":
        whole = training.train(algorithm, env, **{**given, "project": str(tmp_path), "trial": "whole"})
        assert resumed["weights_hash"] == whole.result["weights_hash"]


def test_a_trainer_that_is_killed_ends_the_run_with_how_to_go_on(tmp_path: Path) -> None:
    on_progress, killed = killer(tmp_path / "run", "trainer/0")
    with pytest.raises(training.errors.TrainingError, match="ludus resume run"):
        training.train(
            "appo", runs.slow_cartpole(tmp_path), on_progress=on_progress, project=str(tmp_path), trial="run",
            **{**SMALL, "steps": 60_000},
        )  # fmt: skip
    assert killed
    assert training.resume("run", project=str(tmp_path)).result["steps"] >= 60_000
