"""The synchronous flow: collect, train, publish, in turns. Deterministic: one seed, one result."""

from __future__ import annotations

import logging
import time
from typing import Any, Protocol

from ludus import errors
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.experiment.flows.report import Report
from ludus.learn.algorithms.learner import Learner, Sample
from ludus.learn.algorithms.replay_learner import AnyLearner
from ludus.services.simulator.episodes import Episode
from ludus.services.simulator.simulator import Simulator

__all__ = ["EmbeddedSource", "Source", "SyncFlow"]

_LOG = logging.getLogger(__name__)


class Source(Protocol):
    """Where segments come from, by the learner's present weights."""

    def collect(self, learner: AnyLearner) -> tuple[Segment, list[Episode]]: ...

    def seconds(self) -> dict[str, float]:
        """Where time went since it began, by part."""
        ...

    def counts(self) -> dict[str, float]: ...

    def save(self) -> Nest: ...

    def restore(self, saved: Nest) -> bool:
        """Before the first `collect`. False if the envs cannot be put back where they were: new episodes begin."""
        ...

    def close(self) -> None: ...


class EmbeddedSource:
    """A simulator in this very process, whose runner reads the learner's own weights."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def collect(self, learner: AnyLearner) -> tuple[Segment, list[Episode]]:
        rollout = self._simulator.collect(learner.version)
        return rollout.segment, rollout.episodes

    def seconds(self) -> dict[str, float]:
        stats = self._simulator.statistics()
        return {"step_envs": stats.step_s, "act": stats.act_s}

    def counts(self) -> dict[str, float]:
        return {"dropped_rows": self._simulator.statistics().num_dropped_rows}

    def save(self) -> Nest:
        return self._simulator.save()

    def restore(self, saved: Nest) -> bool:
        num_rows = len(saved["log"]["total"])
        if num_rows != self._simulator.num_rows:
            raise errors.CheckpointError(
                f"the checkpoint has {num_rows} rows of envs and agents, this run {self._simulator.num_rows}: it is "
                "of another run. Go on with the settings it was started with."
            )
        try:
            self._simulator.restore(saved)
        except errors.EnvError as error:
            _LOG.warning("%s", error)
            return False  # the simulator has not started, so all its envs are reset by the next `collect`
        return True

    def close(self) -> None:
        self._simulator.close()


class SyncFlow:
    """`turn` is one round. `publish` is called with each new version, where others wait for it.

    `num_agents`: of each env; their rows are side by side.
    """

    def __init__(
        self, source: Source, learner: Learner, *, publish: Any = None, ranks: Any = None, num_agents: int = 1
    ) -> None:
        self._source = source
        self._learner = learner
        self._publish = publish
        self._ranks = ranks
        self._num_agents = num_agents
        self._before: dict[str, float] = source.seconds()
        self.doing = ""

    def turn(self, progress: float) -> Report:
        began = time.perf_counter()
        self.doing = "collect"
        segment, episodes = self._source.collect(self._learner)
        collected = time.perf_counter()
        num_steps = segment.num_env_steps(self._num_agents)
        if self._ranks is not None:
            num_steps = self._ranks.sum_numbers([num_steps])[0]
        self.doing = "update"
        metrics = self._learner.update(Sample(segment), progress=progress).metrics
        trained = time.perf_counter()
        self.doing = "publish"
        if self._publish is not None:
            self._publish(self._learner)
        ended = time.perf_counter()
        now = self._source.seconds()
        seconds = {name: total - self._before[name] for name, total in now.items()}
        self._before = now
        parts = {**seconds, "train": trained - collected, "publish": ended - trained}
        parts["other"] = max(0.0, ended - began - sum(parts.values()))
        return Report(
            num_steps=int(num_steps), episodes=episodes, metrics=metrics, seconds=parts, counts=self._source.counts()
        )

    def save(self) -> Nest:
        return {"source": self._source.save()}

    def restore(self, saved: Nest) -> bool:
        """Whether the envs go on exactly where they were: with ranks, those of all of them."""
        is_exact = saved is not None and saved["source"] is not None and self._source.restore(saved["source"])
        return is_exact if self._ranks is None else bool(self._ranks.least(is_exact))

    def close(self) -> None:
        self._source.close()
