"""Segments from simulators in other processes, for the synchronous flow: asked for at once, joined in their order."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from ludus import errors
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.learn.algorithms.replay_learner import AnyLearner
from ludus.services.simulator.episodes import Episode, EpisodeLog
from ludus.workers.remote import Remote

__all__ = ["RemoteSource"]

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 120.0


class RemoteSource:
    """`indices` are the replicas of the simulator that this trainer has to itself.

    A simulator that dies is restarted by its engine, with new episodes, and asked again: the round waits for it.
    One that cannot load the version, because somebody deleted it, is asked again when `publish` has made it again.
    """

    def __init__(
        self, simulator: Remote, indices: list[int], *, publish: Callable[[AnyLearner], None] | None = None
    ) -> None:
        self._publish = publish
        self._simulators = [simulator.replica(index) for index in indices]
        self._logs: list[EpisodeLog | None] = [None] * len(indices)
        self._seconds = {"step_envs": 0.0, "act": 0.0, "wait": 0.0}
        self._last_reported = [(0.0, 0.0)] * len(indices)
        self._incarnations: list[str | None] = [None] * len(indices)
        self._num_lost = 0

    def collect(self, learner: AnyLearner) -> tuple[Segment, list[Episode]]:
        began = time.perf_counter()
        pending = [one.submit("collect", learner.version) for one in self._simulators]
        answers = [self._answer(index, call, learner) for index, call in enumerate(pending)]
        elapsed = time.perf_counter() - began
        segments, episodes = [], []
        busiest = (0.0, 0.0)
        for index, answer in enumerate(answers):
            segment = Segment.from_nest(answer["segment"])
            self._note_incarnation(index, answer["incarnation"])
            log = self._logs[index] or EpisodeLog(segment.num_rows)
            self._logs[index] = log
            episodes += log.read(segment)
            segments.append(segment)
            now = (answer["step_s"], answer["act_s"])
            before, self._last_reported[index] = self._last_reported[index], now
            spent = (max(0.0, now[0] - before[0]), max(0.0, now[1] - before[1]))
            busiest = max(busiest, spent, key=sum)
        self._seconds["step_envs"] += busiest[0]
        self._seconds["act"] += busiest[1]
        self._seconds["wait"] += max(0.0, elapsed - sum(busiest))
        return Segment.concat(segments), episodes

    def _answer(self, index: int, call: Any, learner: AnyLearner) -> Nest:
        until = time.monotonic() + _PATIENCE_S
        is_published_again = False
        while True:
            try:
                return call.result()
            except errors.LOST as error:
                if time.monotonic() > until:
                    raise errors.TrainingError(f"simulator {index} did not come back in {_PATIENCE_S:.0f} s") from error
                _LOG.warning("simulator %d was lost (%s); it is asked again", index, error)
                time.sleep(0.1)
            except errors.DataError as error:
                if self._publish is None or is_published_again:
                    raise
                _LOG.warning(
                    "simulator %d has no version %d (%s); it is published again", index, learner.version, error
                )
                self._publish(learner)
                is_published_again = True
            call = self._simulators[index].submit("collect", learner.version)

    def _note_incarnation(self, index: int, incarnation: str) -> None:
        """One that was started again has started other episodes, whether or not a call of ours was lost with it."""
        if self._incarnations[index] not in (None, incarnation):
            self._num_lost += 1
            self._logs[index] = None
            self._last_reported[index] = (0.0, 0.0)
        self._incarnations[index] = incarnation

    def seconds(self) -> dict[str, float]:
        return dict(self._seconds)

    def counts(self) -> dict[str, float]:
        return {"simulators_lost": self._num_lost}

    def save(self) -> Nest:
        if not all(one.is_there for one in self._simulators):  # asked to exit, perhaps; so is this process, then
            _LOG.warning("a simulator is away; this checkpoint is without the envs")
            return None
        saved = [one.submit("save_envs") for one in self._simulators]
        try:
            states = [call.result() for call in saved]
        except errors.LOST as error:
            _LOG.warning("a simulator was lost (%s); this checkpoint is without the envs", error)
            return None
        if any(state is None for state in states):
            return None
        return {"envs": states, "logs": [None if log is None else log.save() for log in self._logs]}

    def restore(self, saved: Nest) -> bool:
        if len(saved["envs"]) != len(self._simulators):
            raise errors.CheckpointError(
                f"the checkpoint is of {len(saved['envs'])} simulators, this run has {len(self._simulators)}."
            )
        pairs = zip(self._simulators, saved["envs"], strict=True)
        calls = [one.submit("restore_envs", state) for one, state in pairs]
        is_exact = True
        for index, (call, log) in enumerate(zip(calls, saved["logs"], strict=True)):
            try:
                call.result()
            except (errors.EnvError, *errors.LOST) as error:  # this one begins new episodes, with a new log
                _LOG.warning("simulator %d: %s", index, error)
                is_exact = False
                continue
            if log is not None:
                self._logs[index] = restored = EpisodeLog(len(log["total"]))
                restored.restore(log)
        return is_exact

    def close(self) -> None:
        self._simulators[0].close()
