"""The asynchronous flow: simulators and games never wait for the trainer, nor it for them, but for a bounded queue.

The lag of every sample, in versions, is measured; segments older than `max_lag` are dropped and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.experiment.flows.producer_logs import ProducerLogs
from ludus.experiment.flows.report import Report
from ludus.learn.algorithms.learner import Learner, Sample
from ludus.services.buffer.buffer_stats import BufferStats
from ludus.services.buffer.nest_buffer import Item

__all__ = ["AsyncFlow", "SegmentBuffer"]

_WAIT_S = 0.02  # then the trainer answers its calls
_PUBLISH_AGAIN_S = 2.0


class SegmentBuffer(Protocol):
    """What segments are taken from: a `NestBuffer` of this process, or whatever else has these."""

    def take(self, num_segments: int, *, timeout_s: float) -> list[Item]:
        """So many, or none if there are not that many in time."""
        ...

    def statistics(self) -> BufferStats: ...

    def close(self) -> None: ...


class AsyncFlow:
    """An update is made of `batch_segments` segments, or more until `batch_steps` steps are in them.

    `publish` is called with each new version. With `ranks`, all of them take their turns together.

    While no segments come, it gets the newest again: somebody may have deleted it, and simulators wait for it.
    `num_agents`: of each env; their rows are side by side. `waits_for` is what status lines call its source.
    `waits_together`: ranks ask each other every moment whether all have a batch. Otherwise one that has its batch
    waits for the others within the update, for as long as a sum over ranks may take; games may stay away for longer.
    """

    def __init__(
        self,
        buffer: SegmentBuffer,
        learner: Learner,
        *,
        publish: Callable[[Learner], None],
        batch_segments: int,
        batch_steps: int = 0,
        max_lag: int,
        ranks: Any = None,
        num_agents: int = 1,
        waits_for: str = "segments",
        waits_together: bool = False,
    ) -> None:
        self._buffer = buffer
        self._learner = learner
        self._publish = publish
        self._batch_segments = batch_segments
        self._batch_steps = batch_steps
        self._max_lag = max_lag
        self._ranks = ranks
        self._num_agents = num_agents
        self._waiting = f"wait for {waits_for}"
        self._waits_together = waits_together and ranks is not None
        self._ready: list[Item] = []
        self._logs = ProducerLogs()
        self._num_stale = 0
        self._num_trained = 0
        self._ended = self._published_again = time.perf_counter()
        self.doing = ""

    def turn(self, progress: float) -> Report | None:
        self.doing = self._waiting
        has_enough = self._collect()
        if self._waits_together:
            has_enough = bool(self._ranks.least(float(has_enough)))
        if not has_enough:
            self._publish_again()
            return None
        began = time.perf_counter()
        items, self._ready = self._ready, []
        episodes = [episode for item in items for episode in self._logs.read(item)]
        segment = Segment.concat([item.segment for item in items])
        lag = self._learner.version - segment.version
        num_steps = segment.num_env_steps(self._num_agents)
        joined = time.perf_counter()
        if self._ranks is not None:
            num_steps = int(self._ranks.sum_numbers([num_steps])[0])
        self.doing = "update"
        metrics = self._learner.update(Sample(segment), progress=progress).metrics
        trained = time.perf_counter()
        self.doing = "publish"
        self._publish(self._learner)
        ended = time.perf_counter()
        self._num_trained += len(items)
        idle, self._ended = began - self._ended, ended
        return Report(
            num_steps=num_steps,
            episodes=episodes,
            metrics=metrics,
            seconds={"idle": idle, "take": joined - began, "train": trained - joined, "publish": ended - trained},
            lag=float(lag.mean()),
            max_lag=int(lag.max()),
            counts=self._counts(),
        )

    def _collect(self) -> bool:
        """Take what there is, until it is enough; false if nothing has come for a moment."""
        while not self._has_enough():
            taken = self._buffer.take(1, timeout_s=_WAIT_S)
            if not taken:
                return False
            self._ready.extend(item for item in taken if self._is_fresh(item))
        return True

    def _has_enough(self) -> bool:
        if len(self._ready) < self._batch_segments:
            return False
        return not self._batch_steps or sum(item.segment.num_active for item in self._ready) >= self._batch_steps

    def _publish_again(self) -> None:
        now = time.perf_counter()
        if now - max(self._ended, self._published_again) >= _PUBLISH_AGAIN_S:
            self._publish(self._learner)
            self._published_again = time.perf_counter()

    def _is_fresh(self, item: Item) -> bool:
        if self._learner.version - int(item.segment.version.min()) <= self._max_lag:
            return True
        self._logs.read(item)  # its episodes are part of what follows
        self._num_stale += 1
        return False

    def _counts(self) -> dict[str, float]:
        stats = self._buffer.statistics()
        return {
            "segments_pushed": stats.num_pushed,
            "segments_trained": self._num_trained,
            "segments_stale": self._num_stale,
            "segments_duplicate": stats.num_duplicates,
            "segments_queued": stats.size,
        }

    def save(self) -> Nest:
        """The envs go on without the trainer, so there is nothing to keep of them."""
        return None

    def restore(self, saved: Nest) -> bool:
        return False

    def close(self) -> None:
        self._buffer.close()
