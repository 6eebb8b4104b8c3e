"""The replay flow: what is collected is kept, and learnt from as often as the table's rate limiter says.

In one process collecting and learning take turns, with nothing in between. Spread, simulators push by themselves; the
flow takes from their queue while the limiter lets it insert, and a queue that is full makes them wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.experiment.flows.async_ import SegmentBuffer
from ludus.experiment.flows.producer_logs import ProducerLogs, producer_of
from ludus.experiment.flows.report import Report
from ludus.experiment.flows.sync import Source
from ludus.learn.algorithms.replay_learner import Replayed, ReplayLearner
from ludus.services.simulator.episodes import Episode

__all__ = ["Collected", "QueueFeed", "Replay", "ReplayFlow", "SourceFeed"]

_WAIT_S = 0.02  # then the trainer answers its calls
_PUBLISH_EVERY_S = 0.1  # a version is a file: more often helps nobody who acts
_PUBLISH_AGAIN_S = 2.0
_MOST_BATCHES = 64  # of one turn: between turns a run can be stopped and kept


class Collected(NamedTuple):
    """A segment, who made it, and the episodes that end in it."""

    segment: Segment
    stream: str
    episodes: list[Episode]


class Feed(Protocol):
    """Where a replay flow has segments from."""

    waits_for: str  # what status lines call it

    def take(self, learner: ReplayLearner, *, wait_s: float) -> Collected | None:
        """The next segment; `None` if there was none in time."""
        ...

    def seconds(self) -> dict[str, float]:
        """Where time went since it began, by part."""
        ...

    def counts(self) -> dict[str, float]: ...

    def save(self) -> Nest: ...

    def restore(self, saved: Nest) -> bool: ...

    def close(self) -> None: ...


class SourceFeed:
    """Segments that are collected when they are asked for, by the newest weights."""

    waits_for = "collect"

    def __init__(self, source: Source) -> None:
        self._source = source

    def take(self, learner: ReplayLearner, *, wait_s: float) -> Collected:
        segment, episodes = self._source.collect(learner)
        return Collected(segment, "0", episodes)

    def seconds(self) -> dict[str, float]:
        return self._source.seconds()

    def counts(self) -> dict[str, float]:
        return self._source.counts()

    def save(self) -> Nest:
        return self._source.save()

    def restore(self, saved: Nest) -> bool:
        return saved is not None and self._source.restore(saved)

    def close(self) -> None:
        self._source.close()


class QueueFeed:
    """Segments that simulators, or games, push into a queue of this process."""

    def __init__(self, buffer: SegmentBuffer, *, waits_for: str = "segments") -> None:
        self.waits_for = f"wait for {waits_for}"
        self._buffer = buffer
        self._logs = ProducerLogs()
        self._idle_s = 0.0

    def take(self, learner: ReplayLearner, *, wait_s: float) -> Collected | None:
        began = time.perf_counter()
        taken = self._buffer.take(1, timeout_s=wait_s)
        self._idle_s += time.perf_counter() - began
        if not taken:
            return None
        return Collected(taken[0].segment, producer_of(taken[0]), self._logs.read(taken[0]))

    def seconds(self) -> dict[str, float]:
        return {"idle": self._idle_s}

    def counts(self) -> dict[str, float]:
        stats = self._buffer.statistics()
        return {
            "segments_pushed": stats.num_pushed,
            "segments_duplicate": stats.num_duplicates,
            "segments_queued": stats.size,
        }

    def save(self) -> Nest:
        """Simulators go on without the trainer, so there is nothing to keep of them."""
        return None

    def restore(self, saved: Nest) -> bool:
        return False

    def close(self) -> None:
        self._buffer.close()


class Replay(Protocol):
    """What was collected, and the table that draws from it: `ludus.experiment.replay.TrainingReplay`."""

    def insert(self, segment: Segment, stream: str) -> None: ...

    def has_room(self) -> bool:
        """Whether the rate limiter lets more be inserted now."""
        ...

    def num_ready(self, most: int) -> int:
        """How many batches the rate limiter lets be drawn now, at most so many."""
        ...

    def draw(self, num_batches: int, *, progress: float) -> Replayed: ...

    def update_priorities(self, keys: Any, priorities: Any) -> None: ...

    def counts(self) -> dict[str, float]: ...

    def save(self) -> Nest: ...

    def restore(self, saved: Nest) -> bool:
        """Whether it goes on exactly where it was."""
        ...

    def close(self) -> None: ...


class ReplayFlow:
    """`turn` takes a segment if there is room for it, and makes the gradient steps that it pays for.

    `publish` is called with new versions, where others act by them. `num_agents`: of each env.
    """

    def __init__(
        self,
        feed: Feed,
        replay: Replay,
        learner: ReplayLearner,
        *,
        publish: Callable[[ReplayLearner], None] | None = None,
        ranks: Any = None,
        num_agents: int = 1,
    ) -> None:
        self._feed = feed
        self._replay = replay
        self._learner = learner
        self._publish = publish
        self._ranks = ranks
        self._num_agents = num_agents
        self._num_steps = 0  # of all ranks
        self._held: Collected | None = None  # until every rank has one
        self._before = feed.seconds()
        self._published = -float("inf")
        self._published_version: int | None = None
        self._is_changed = False
        self.doing = ""

    def turn(self, progress: float) -> Report | None:
        began = time.perf_counter()
        if self._published_version is None:  # what it begins with is published before it begins
            self._published_version = self._learner.version
        self._is_changed |= self._learner.explore(self._num_steps, progress)
        collected = self._collect()
        num_steps = 0
        if collected is not None:
            prepared = self._learner.algorithm.prepare(collected.segment)
            self._replay.insert(prepared, collected.stream)
            self._learner.observe(prepared, collected.stream)
            self._is_changed = True
            num_steps = self._sum(collected.segment.num_env_steps(self._num_agents))
            self._num_steps += num_steps
        num_batches = self._decide(self._replay.num_ready(_MOST_BATCHES))
        if collected is None and not num_batches:
            self._publish_if_due(_PUBLISH_AGAIN_S)
            return None
        inserted = time.perf_counter()
        metrics = self._learn(num_batches, progress) if num_batches else {}
        trained = time.perf_counter()
        self._publish_if_due(_PUBLISH_EVERY_S)
        ended = time.perf_counter()
        now = self._feed.seconds()
        parts = {name: total - self._before[name] for name, total in now.items()}
        self._before = now
        parts |= {"train": trained - inserted, "publish": ended - trained}
        parts["other"] = max(0.0, ended - began - sum(parts.values()))
        return Report(
            num_steps=num_steps,
            episodes=[] if collected is None else collected.episodes,
            metrics=metrics,
            seconds=parts,
            counts={**self._feed.counts(), **self._replay.counts()},
            is_collected=collected is not None,
        )

    def _collect(self) -> Collected | None:
        """The next segment, if there is room for it; of several ranks, when each has one."""
        if not self._decide(self._replay.has_room()):
            return None
        self.doing = self._feed.waits_for
        held, self._held = self._held, None
        if held is None:
            held = self._feed.take(self._learner, wait_s=0.0 if self._replay.num_ready(1) else _WAIT_S)
        if self._ranks is not None and not self._ranks.least(held is not None):
            self._held = held
            return None
        return held

    def _decide(self, number: int) -> int:
        """What the first rank says: its rate limiter is that of all."""
        if self._ranks is None:
            return number
        return int(self._ranks.sum_numbers([number if self._ranks.rank == 0 else 0])[0])

    def _sum(self, number: int) -> int:
        return number if self._ranks is None else int(self._ranks.sum_numbers([number])[0])

    def _learn(self, num_batches: int, progress: float) -> dict[str, float]:
        self.doing = "update"
        sample = self._replay.draw(num_batches, progress=progress)
        update = self._learner.update(sample, progress=progress)
        if update.priorities is not None:
            self._replay.update_priorities(sample.keys, update.priorities)
        return update.metrics

    def _publish_if_due(self, every_s: float) -> None:
        if self._publish is None or time.perf_counter() - self._published < every_s:
            return
        self.doing = "publish"
        # Scales and exploration are part of the weights, and change without an update, too.
        if self._is_changed and self._learner.version == self._published_version:
            self._learner.version += 1
        self._publish(self._learner)
        self._published, self._published_version = time.perf_counter(), self._learner.version
        self._is_changed = False

    def save(self) -> Nest:
        return {"feed": self._feed.save(), "replay": self._replay.save(), "num_steps": self._num_steps}

    def restore(self, saved: Nest) -> bool:
        """Whether envs and replay go on exactly where they were: with ranks, those of all of them."""
        self._num_steps = int(saved["num_steps"])
        is_exact = self._replay.restore(saved["replay"])
        is_exact = self._feed.restore(saved["feed"]) and is_exact
        return is_exact if self._ranks is None else bool(self._ranks.least(is_exact))

    def close(self) -> None:
        self._feed.close()
        self._replay.close()
