from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ludus import errors
from ludus.experiment import results

from .trial_folders import RESULT, make_trial


def _dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_trial_that_was_stopped_tells_how_far_it_came(tmp_path: Path) -> None:
    summary = results.summarise(make_trial(tmp_path / "monday", driver_pid=_dead_pid()), now=time.time() + 60)
    assert summary.name == "monday"
    assert (summary.algorithm, summary.env, summary.seed) == ("ppo", "CartPole-v1", 3)
    assert (summary.steps, summary.total_steps, summary.saved_step) == (5500, 10_000, 4000)
    assert (summary.greedy_return, summary.sampled_return, summary.training_return) == (None, None, 50.0)
    assert summary.status == "stopped"
    assert summary.age_s == pytest.approx(60, abs=10)


def test_without_a_checkpoint_a_stopped_trial_is_lost(tmp_path: Path) -> None:
    assert results.summarise(make_trial(tmp_path / "monday", checkpoint=None)).status == "lost"


def test_one_that_has_a_result_has_ended_and_tells_its_evaluation(tmp_path: Path) -> None:
    returns = {"eval_sampled_return_mean": 480.5, "return_mean": 450.0}
    summary = results.summarise(make_trial(tmp_path / "monday", result=RESULT | returns))
    assert summary.status == "ended"
    assert summary.steps == 10_000
    assert (summary.greedy_return, summary.sampled_return, summary.training_return) == (487.25, 480.5, 450.0)


def test_one_whose_driver_lives_is_running_even_if_it_had_ended_before(tmp_path: Path) -> None:
    folder = make_trial(tmp_path / "monday", result=RESULT, driver_pid=os.getpid())
    assert results.summarise(folder).status == "running"


def test_torn_files_are_left_out(tmp_path: Path) -> None:
    folder = make_trial(tmp_path / "monday")
    for name in ("config.json", "result.json", "trial.json", "checkpoints/checkpoints.json"):
        (folder / name).write_text('{"tra')
    summary = results.summarise(folder)
    assert (summary.algorithm, summary.steps, summary.status) == ("?", 5500, "lost")
    with pytest.raises(errors.TrainingError, match=r"config\.json cannot be read"):
        results.read_config(folder)
