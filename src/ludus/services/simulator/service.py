"""The simulator as a worker: it collects and pushes by itself (async), or a segment when it is asked (sync)."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.core import VectorEnv
from ludus.data.nest import Nest
from ludus.errors import DataError
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.models.client import ModelClient
from ludus.models.versions.client import connect
from ludus.services.buffer.client import BufferProducer
from ludus.services.simulator.chooser import Chooser, InlineChooser, RemoteChooser
from ludus.services.simulator.simulator import Simulator
from ludus.workers.register import register
from ludus.workers.remote import Remote
from ludus.workers.server import WorkerServer
from ludus.workers.worker import Worker

__all__ = ["SimulatorService", "SimulatorSettings"]

_LOG = logging.getLogger(__name__)
_WAIT_S = 0.02


@dataclass(frozen=True, kw_only=True)
class SimulatorSettings:
    """The settings of a simulator's process."""

    make_groups: Callable[[], list[VectorEnv]]
    policy: PolicySpec
    num_steps: int
    seed: int
    num_trainers: int = 1
    is_async: bool = True
    model: str = "policy"
    make_search: Callable[[Policy], Chooser] | None = None  # a chooser that looks ahead, if the algorithm has one
    exponents: NDArray[np.float32] | None = None  # of the rows of all simulators: how much each explores


class SimulatorService(Worker):
    """Replica `i` works for trainer `i % num_trainers`. It runs the policy itself, unless `inference` is given."""

    idle_s = 0.2  # in sync: a request ends it

    def __init__(
        self,
        server: WorkerServer,
        settings: SimulatorSettings,
        weights: Any,
        inference: Remote | None = None,
    ) -> None:
        """`weights` is the remote of a `WeightsService`, or a folder."""
        super().__init__(server)
        self._settings = settings
        self._index = int(server.worker_name.rpartition("/")[2])
        self._source = weights
        self._inference = inference
        self._version = -1
        self._rewinds = 0
        self._missing: int | None = None  # a version that could not be loaded
        self._wait_s = 0.0
        self._incarnation = uuid.uuid4().hex  # a simulator that is started again has other episodes
        server.register_service(self)

    def _start(self) -> None:
        torch.set_num_threads(1)
        settings = self._settings
        self._weights = connect(self._source)
        # async: one that is started again does not play the same again. Sync: the seed alone decides.
        started_at = (self._weights.latest(settings.model) or 0) if settings.is_async else 0
        self._policy = Policy(settings.policy)
        rank = self._index % settings.num_trainers
        self._producer = _producer(rank, self.server.worker_name) if settings.is_async else None
        groups = settings.make_groups()
        exponents = settings.exponents
        if exponents is not None:
            num_rows = sum(group.num_rows for group in groups)
            exponents = exponents[self._index * num_rows : (self._index + 1) * num_rows]
        chooser: Chooser
        if settings.make_search is not None:
            chooser = settings.make_search(self._policy)
        elif self._inference is None:
            chooser = InlineChooser(self._policy, exponents)
        else:
            chooser = self._remote = RemoteChooser(ModelClient.of(self._inference), self._policy.head, exponents)
        self._simulator = Simulator(
            groups,
            chooser,
            num_steps=settings.num_steps,
            seed=int(np.random.SeedSequence([settings.seed, self._index, started_at]).generate_state(1)[0]),
            state_spec=self._policy.state_spec,
            num_slots=self._producer.num_segments if self._producer is not None else 2,
        )
        self._began = time.monotonic()

    def _poll(self) -> int:
        """Async: one segment, as soon as there is a credit for it."""
        if self._producer is None:
            return 0
        began = time.monotonic()
        if not self._take_newest() or not self._producer.poll(_WAIT_S):
            self._wait_s += time.monotonic() - began
            return 1  # it has waited already
        self._wait_s += time.monotonic() - began
        self._producer.push(self._simulator.collect(self._version).segment)
        return 1

    def _take_newest(self) -> bool:
        """Have the newest weights; false as long as there are none."""
        number = self._weights.latest(self._settings.model)
        if number is None:
            time.sleep(_WAIT_S)
            return False
        rewinds = self._weights.num_rewinds(self._settings.model)
        if number != self._version or rewinds != self._rewinds:
            try:
                self._load(number)
            except DataError as error:
                if self._version < 0 or rewinds != self._rewinds:
                    raise
                if number != self._missing:
                    _LOG.warning("version %d is not there; version %d plays on: %s", number, self._version, error)
                self._missing = number
            self._rewinds = rewinds
        return True

    def _load(self, number: int | str) -> None:
        if self._inference is None:
            version, weights = self._weights.get(self._settings.model, number)
            self._policy.load_weights(weights)
            self._version = version.number
        else:
            self._version = self._weights.resolve(self._settings.model, number)
            self._remote.version = self._version

    # -- what the heartbeat asks

    def activity(self, method: str) -> str:
        return "collect" if method == "poll" else method

    def progress_mark(self) -> object:
        """It changes with every step of the envs, not only with every segment: one segment may take very long."""
        if not hasattr(self, "_began"):
            return super().progress_mark()
        stats = self._simulator.statistics()
        return super().progress_mark(), stats.num_segments, stats.step_s, stats.act_s

    def has_worked(self, *, is_busy: bool) -> bool:
        return hasattr(self, "_began") and self._simulator.statistics().num_segments > 0

    def report(self) -> Mapping[str, float]:
        return {"idle": self._idle_fraction()} if hasattr(self, "_began") else {}

    def _idle_fraction(self) -> float:
        stats, elapsed = self._simulator.statistics(), max(time.monotonic() - self._began, 1e-9)
        return max(0.0, 1.0 - (stats.step_s + stats.act_s) / elapsed)

    # -- sync: commands -----------------------------------------------------------------------------------------

    @register
    def collect(self, version: int) -> dict[str, Nest]:
        """A segment by the weights of `version`."""
        if version != self._version:
            self._load(version)
        rollout = self._simulator.collect(version)
        stats = self._simulator.statistics()
        return {
            "segment": rollout.segment.to_nest(),
            "step_s": stats.step_s,
            "act_s": stats.act_s,
            "incarnation": self._incarnation,
        }

    @register
    def save_envs(self) -> Nest:
        """`Simulator.save`."""
        return self._simulator.save()

    @register
    def restore_envs(self, saved: Nest) -> None:
        """`Simulator.restore`."""
        self._simulator.restore(saved)
        self._version = -1

    def _stats(self) -> Mapping[str, Any]:
        if not hasattr(self, "_simulator"):
            return {}
        stats = self._simulator.statistics()
        elapsed = max(time.monotonic() - self._began, 1e-9)
        num_failures, last_failure = self._simulator.failures()
        return {
            "num_steps": stats.num_steps,
            "num_segments": stats.num_segments,
            "num_dropped_rows": stats.num_dropped_rows,
            "num_failures": num_failures,
            "last_failure": last_failure,
            "version": self._version,
            "idle": self._idle_fraction(),
            "step_envs": stats.step_s / elapsed,
            "act": stats.act_s / elapsed,
        }

    def _exit(self) -> None:
        if hasattr(self, "_simulator"):
            self._simulator.close()


def _producer(rank: int, worker: str) -> BufferProducer:
    """With one credit: the next segment is collected while one is on its way, and they arrive in order."""
    return BufferProducer(Remote("buffer").replica(rank), producer=worker, credits=1)
