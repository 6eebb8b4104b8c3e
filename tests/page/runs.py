"""Training runs as they are on disk, made without training: curves of a formula, written by the real writer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from ludus.program.folder import TrialFolder, TrialRecord
from ludus.telemetry.metrics_file import MetricsWriter


def make_run(project: Path, name: str, *, algorithm: str = "impala", seed: int = 0, num_lines: int = 240) -> Path:
    """A run that has ended, spread over simulators and an inference worker, with a curve that rises to 500."""
    folder = TrialFolder.create(project, name).path
    train = {"env": "CartPole-v1", "algorithm": algorithm, "steps": 2048 * num_lines}
    (folder / "config.json").write_text(json.dumps({"train": train}))
    (folder / "result.json").write_text(json.dumps({"steps": 2048 * num_lines}))
    rng, now, noise = np.random.default_rng(seed), [0.0], 0.0
    slope = 0.02 + 0.015 * seed
    with MetricsWriter(folder, clock=lambda: now[0]) as writer:
        for number in range(1, num_lines + 1):
            now[0] += 0.5 * (1.0 + 0.2 * seed)
            noise = 0.8 * noise + 0.03 * rng.standard_normal()
            level = 500.0 / (1.0 + math.exp(4.0 - slope * number))
            rate = 4000.0 + 300.0 * rng.standard_normal() - 400.0 * seed
            idle = 0.45 + 0.05 * rng.standard_normal()
            values = {
                "episode/return": min(500.0, max(9.0, level * (1.0 + noise))),
                "episode/length": level, "train/loss": math.exp(-number / 80) * (1.0 + 0.3 * rng.random()),
                "train/entropy": 0.69 * math.exp(-number / 200), "train/gradient_norm": 0.4 + 0.1 * rng.random(),
                "lag/mean": 2.0 + rng.random(), "lag/max": 4.0 + float(rng.integers(0, 3)),
                "time/steps_per_second": rate, "time/idle": idle, "time/train": 0.9 - idle, "time/publish": 0.09,
                "time/take": 0.01, "count/segments_stale": 0.0,
            }  # fmt: skip
            if number % 20 == 0:
                values |= {
                    "model/policy/busy": 0.82, "model/policy/rows_per_second": rate, "model/policy/batch_rows": 14.2,
                    "model/policy/pending": 2.0, "buffer/policy/size": 3.0, "buffer/policy/waiting_producers": 0.0,
                    "buffer/policy/pushed_per_second": 31.2, "buffer/policy/taken_per_second": 31.2,
                }  # fmt: skip
            if number % 40 == 0:
                values |= {"eval/return": level, "eval/return_std": 60.0 * math.exp(-number / 150)}
            writer.write(2048 * number, values)
    TrialFolder(folder).save(TrialRecord.own(folder, experiment="run", names_url="", engine="local"))
    TrialFolder(folder).mark_ended("stopped")
    return folder
