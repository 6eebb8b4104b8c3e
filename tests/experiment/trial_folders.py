"""Folders as training leaves them, without the training."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ludus.experiment.checkpoints import CheckpointStore
from ludus.telemetry.metrics_file import MetricsWriter

RESULT = {
    "algorithm": "ppo",
    "env": "CartPole-v1",
    "seed": 3,
    "steps": 10_000,
    "seconds": 2.5,
    "steps_per_second": 4000.0,
    "seconds_to_first_update": 1.5,
    "eval_return_mean": 487.25,
    "eval_return_std": 10.5,
    "eval_episodes": 100,
    "weights_hash": "ab" * 32,
    "trial": "monday",
}


def make_trial(
    folder: Path,
    *,
    checkpoint: int | None = 4000,
    result: dict[str, Any] | None = None,
    driver_pid: int | None = None,
) -> Path:
    folder.mkdir(parents=True)
    train = {"algorithm": "ppo", "env": "CartPole-v1", "seed": 3, "steps": 10_000}
    (folder / "config.json").write_text(json.dumps({"train": train, "algorithm": {}, "network": {}}))
    with MetricsWriter(folder) as metrics:
        for step in (2000, 4000, 5000):
            metrics.write(step, {"episode/return": step / 100, "time/steps_per_second": 4000.0})
        metrics.write(5500, {"train/loss": 0.5})
    if checkpoint is not None:
        CheckpointStore(folder / "checkpoints").save(checkpoint, {"weights": {"w": np.zeros(3)}})
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    if driver_pid is not None:
        trial = {"driver_pid": driver_pid, "driver_host": os.uname().nodename, "ended": None}
        (folder / "trial.json").write_text(json.dumps(trial))
    return folder
