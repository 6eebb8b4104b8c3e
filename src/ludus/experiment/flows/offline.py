"""The offline flow: gradient steps from datasets. Nothing is collected. Deterministic: one seed, one result."""

from __future__ import annotations

import time

from ludus.data.nest import Nest
from ludus.experiment.datasets.replay import DatasetReplay
from ludus.experiment.flows.report import Report
from ludus.learn.algorithms.replay_learner import ReplayLearner

__all__ = ["OfflineFlow"]

_STREAM = "dataset"


class OfflineFlow:
    """`turn` makes `num_batches` gradient steps. `Report.num_steps` counts the transitions that were drawn for them."""

    def __init__(self, replay: DatasetReplay, learner: ReplayLearner, *, num_batches: int) -> None:
        self._replay = replay
        self._learner = learner
        self._num_batches = num_batches
        self._has_scales = False
        self.doing = ""

    def turn(self, progress: float) -> Report:
        began = time.perf_counter()
        if not self._has_scales:
            self._observe()
        read = time.perf_counter()
        self.doing = "draw"
        sample = self._replay.draw(self._num_batches, progress=progress)
        drawn = time.perf_counter()
        self.doing = "update"
        metrics = self._learner.update(sample, progress=progress).metrics
        ended = time.perf_counter()
        return Report(
            num_steps=sample.batch.num_rows,
            metrics=metrics,
            seconds={"read": read - began, "draw": drawn - read, "train": ended - drawn},
            counts=self._replay.counts(),
        )

    def _observe(self) -> None:
        """The scales of observations and rewards are those of the datasets, from the first step on."""
        self.doing = "read the datasets"
        for episode in self._replay.load().episodes():
            self._learner.observe(episode.segment(), _STREAM)
        self._has_scales = True

    def save(self) -> Nest:
        return {"replay": self._replay.save(), "has_scales": self._has_scales}

    def restore(self, saved: Nest) -> bool:
        is_exact = self._replay.restore(saved["replay"])
        self._has_scales = bool(saved["has_scales"])
        return is_exact

    def close(self) -> None:
        """There is nothing to let go of."""
