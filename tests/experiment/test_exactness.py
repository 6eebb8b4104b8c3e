"""One seed, one result: in two runs, after kill -9 at any moment, after Ctrl-C."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ludus.experiment.training import Training
from ludus.telemetry.metrics_file import read_metrics
from ludus.training import api as training

from . import runs

SMALL = {
    "num_envs": 4, "num_steps": 32, "num_epochs": 1, "minibatch_size": 64, "seed": 3, "threads": 1, "eval_episodes": 2,
    "checkpoint_seconds": 0.05, "hidden": "16",
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("CartPole-v1", {"steps": 8_000}),
    "recurrent": ("CartPole-v1", {"steps": 4_000, "recurrent": "lstm", "recurrent_size": 8}),
    "replayed": ("Acrobot-v1", {"steps": 6_000}),
    "longer": ("CartPole-v1", {"steps": 40_000}),  # so that there is time to stop it
    "longer-recurrent": ("CartPole-v1", {"steps": 12_000, "recurrent": "lstm", "recurrent_size": 8}),
    "normalised": ("Pendulum-v1", {"steps": 6_000, "normalise_obs": True, "anneal": True}),
}
SHORT = sorted(name for name in CASES if not name.startswith("longer"))
_wholes: dict[str, dict[str, Any]] = {}


def settings_of(case: str, project: Path, trial: str) -> dict[str, Any]:
    return {**SMALL, **CASES[case][1], "project": str(project), "trial": trial}


def whole(case: str, project: Path) -> dict[str, Any]:
    """The result of a run that nobody stops."""
    if case not in _wholes:
        _wholes[case] = training.train("ppo", CASES[case][0], **settings_of(case, project, "whole")).result
    return _wholes[case]


def check_metrics(folder: Path) -> None:
    counts = Counter((line["step"], name) for line in read_metrics(folder) for name in line if "/" in name)
    assert max(counts.values()) == 1


@pytest.mark.parametrize("case", SHORT)
def test_two_runs_of_one_seed_have_the_same_weights(case: str, tmp_path: Path) -> None:
    again = training.train("ppo", CASES[case][0], **settings_of(case, tmp_path, "again")).result
    assert again["weights_hash"] == whole(case, tmp_path)["weights_hash"]
    assert again["eval_return_mean"] == whole(case, tmp_path)["eval_return_mean"]


def test_another_seed_has_other_weights(tmp_path: Path) -> None:
    settings = settings_of("plain", tmp_path, "other")
    other = training.train("ppo", "CartPole-v1", **{**settings, "seed": 4}).result
    assert other["weights_hash"] != whole("plain", tmp_path)["weights_hash"]


@pytest.mark.parametrize("case", ["plain", *SHORT])
def test_killed_at_a_random_moment_it_goes_on_to_the_same_weights(case: str, tmp_path: Path) -> None:
    child = runs.start(runs.train, "ppo", CASES[case][0], settings_of(case, tmp_path, "killed"), ends=False)
    moment = random.uniform(0.0, 0.6) * CASES[case][1]["steps"]
    runs.wait_until(lambda: runs.saved_step(tmp_path / "killed") > moment)
    time.sleep(random.uniform(0.0, 0.03))  # somewhere between two checkpoints
    runs.kill(child)
    assert not (tmp_path / "killed" / "result.json").exists()
    resumed = training.resume("killed", project=str(tmp_path)).result
    assert resumed["steps"] == whole(case, tmp_path)["steps"]
    assert resumed["weights_hash"] == whole(case, tmp_path)["weights_hash"], f"killed after step {moment:.0f}"
    check_metrics(tmp_path / "killed")


@pytest.mark.parametrize("write", [1, 2, 5])
def test_killed_in_the_middle_of_a_checkpoint_it_goes_on_from_the_one_before(write: int, tmp_path: Path) -> None:
    """Each checkpoint is two writes: itself, and the list. Before the first there is nothing, and it starts again."""
    settings = settings_of("plain", tmp_path, "killed") | {"checkpoint_seconds": 0}
    child = runs.start(runs.train, "ppo", "CartPole-v1", settings, die_at_write=write)
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert len(list((tmp_path / "killed" / "checkpoints").glob(".*.part"))) == 1
    resumed = training.resume("killed", project=str(tmp_path)).result
    assert resumed["weights_hash"] == whole("plain", tmp_path)["weights_hash"]
    assert list((tmp_path / "killed" / "checkpoints").glob(".*.part")) == []
    check_metrics(tmp_path / "killed")


def test_killed_again_and_again_it_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    settings = settings_of("plain", tmp_path, "killed")
    child = runs.start(runs.train, "ppo", "CartPole-v1", settings, ends=False)
    for number in range(3):
        # On a fast machine it may have made all its steps before the third kill.
        wanted = min(runs.saved_step(tmp_path / "killed") + 1, settings["steps"])
        runs.wait_until(lambda wanted=wanted: runs.saved_step(tmp_path / "killed") >= wanted)
        runs.kill(child)
        child = runs.start(runs.resume, "killed", str(tmp_path), ends=number == 2)
    child.join(60)
    assert child.exitcode == 0
    result = json.loads((tmp_path / "killed" / "result.json").read_text())
    assert result["weights_hash"] == whole("plain", tmp_path)["weights_hash"]
    check_metrics(tmp_path / "killed")


@pytest.mark.parametrize("case", ["longer", "longer-recurrent"])
def test_ctrl_c_ends_the_update_keeps_it_and_says_how_to_go_on(case: str, tmp_path: Path) -> None:
    env, own = CASES[case]
    words = ["train", "ppo", env, "--trial", "stopped", "--project", str(tmp_path)]
    for name, value in {**SMALL, **own, "checkpoint_seconds": 3600}.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    child = runs.start(runs.command, words, str(tmp_path / "said"))
    metrics = tmp_path / "stopped" / "metrics.jsonl"
    runs.wait_until(lambda: metrics.exists() and metrics.read_text())  # it trains; there is no checkpoint yet
    assert child.pid is not None
    os.kill(child.pid, signal.SIGINT)
    child.join(60)
    said = (tmp_path / "said").read_text()
    assert child.exitcode == 130, said
    assert "go on with: ludus resume stopped" in said
    assert "Traceback" not in said
    assert 0 < runs.saved_step(tmp_path / "stopped") < own["steps"]
    resumed = training.resume("stopped", project=str(tmp_path)).result
    assert resumed["weights_hash"] == whole(case, tmp_path)["weights_hash"]
    check_metrics(tmp_path / "stopped")


def test_ctrl_c_at_the_end_of_training_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    """The evaluation is left to a resume; what was learnt since the last checkpoint is not lost."""
    settings = settings_of("plain", tmp_path, "stopped") | {"checkpoint_seconds": 3600}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        saved = Training.checkpoint

        def checkpoint(self: Training) -> Path:
            os.kill(os.getpid(), signal.SIGINT)
            return saved(self)

        patch.setattr(Training, "checkpoint", checkpoint)
        training.train("ppo", "CartPole-v1", **settings)
    assert runs.saved_step(tmp_path / "stopped") >= settings["steps"]
    resumed = training.resume("stopped", project=str(tmp_path)).result
    assert resumed["weights_hash"] == whole("plain", tmp_path)["weights_hash"]
    assert resumed["eval_episodes"] == settings["eval_episodes"]


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    settings = {**settings_of("plain", tmp_path, "stopped"), "steps": 10_000_000, "num_epochs": 5000}
    child = runs.start(runs.train, "ppo", "CartPole-v1", settings)
    runs.wait_until((tmp_path / "stopped" / "trial.json").exists)
    assert child.pid is not None
    until = time.monotonic() + 60
    while child.is_alive():
        os.kill(child.pid, signal.SIGINT)
        child.join(0.2)
        assert time.monotonic() < until
    assert child.exitcode == 1
    assert not (tmp_path / "stopped" / "result.json").exists()
