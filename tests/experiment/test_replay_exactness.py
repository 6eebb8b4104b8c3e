"""Learning from replay: one seed, one result; in two runs, and after kill -9 at any moment."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from ludus.training import api as training

from . import runs

SMALL = {
    "num_envs": 4, "num_steps": 2, "min_size": 200, "batch_size": 32, "capacity": 1_000, "seed": 3, "threads": 1,
    "eval_episodes": 2, "checkpoint_seconds": 0.05, "hidden": "16",
}  # fmt: skip
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "prioritised": ("dqn", "CartPole-v1", {"steps": 2_000, "prioritised": True, "n_step": 3}),
    "sequences": (
        "r2d2",
        "CartPole-v1",
        {"steps": 1_500, "num_steps": 10, "recurrent_size": 8, "updates_per_step": 0.1},
    ),
    "sac": ("sac", "Pendulum-v1", {"steps": 1_200, "prioritised": True}),
}
OTHERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "c51": ("dqn", "CartPole-v1", {"steps": 1_000, "distribution": "c51"}),
    "td3": ("td3", "Pendulum-v1", {"steps": 800}),
}
_wholes: dict[str, dict[str, Any]] = {}


def run_of(case: str) -> tuple[str, str, dict[str, Any]]:
    return {**CASES, **OTHERS}[case]


def settings_of(case: str, project: Path, trial: str) -> dict[str, Any]:
    return {**SMALL, **run_of(case)[2], "project": str(project), "trial": trial}


def whole(case: str, project: Path) -> dict[str, Any]:
    """The result of a run that nobody stops."""
    if case not in _wholes:
        _wholes[case] = training.train(*run_of(case)[:2], **settings_of(case, project, "whole")).result
    return _wholes[case]


@pytest.mark.parametrize("case", [*CASES, *OTHERS])
def test_two_runs_of_one_seed_have_the_same_weights(case: str, tmp_path: Path) -> None:
    again = training.train(*run_of(case)[:2], **settings_of(case, tmp_path, "again")).result
    assert again["weights_hash"] == whole(case, tmp_path)["weights_hash"]


def test_another_seed_has_other_weights(tmp_path: Path) -> None:
    settings = settings_of("prioritised", tmp_path, "other") | {"seed": 4}
    other = training.train(*CASES["prioritised"][:2], **settings).result
    assert other["weights_hash"] != whole("prioritised", tmp_path)["weights_hash"]


@pytest.mark.parametrize("case", CASES)
def test_killed_at_a_random_moment_it_goes_on_to_the_same_weights(case: str, tmp_path: Path) -> None:
    """The table is in the checkpoint, with its priorities and the counts of its rate limiter."""
    algorithm, env, own = CASES[case]
    child = runs.start(runs.train, algorithm, env, settings_of(case, tmp_path, "killed"), ends=False)
    moment = random.uniform(0.1, 0.6) * own["steps"]
    runs.wait_until(lambda: runs.saved_step(tmp_path / "killed") > moment)
    time.sleep(random.uniform(0.0, 0.03))  # somewhere between two checkpoints
    runs.kill(child)
    assert not (tmp_path / "killed" / "result.json").exists()
    resumed = training.resume("killed", project=str(tmp_path)).result
    assert resumed["steps"] == whole(case, tmp_path)["steps"]
    assert resumed["weights_hash"] == whole(case, tmp_path)["weights_hash"], f"killed after step {moment:.0f}"
