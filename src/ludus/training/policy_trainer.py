"""Training of a policy from the segments that its actors keep: for `RemoteTrainer().train(train=train_policy, …)`.

It is the asynchronous flow of `ludus train`, from a named buffer to a named model, in a script of one's own.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import torch

from ludus.data.segment import Segment
from ludus.errors import ConfigError, DataError
from ludus.experiment.flows.async_ import AsyncFlow
from ludus.learn.algorithms import registry
from ludus.learn.algorithms.learner import Learner
from ludus.learn.policies.served import ServedPolicy
from ludus.options import replace
from ludus.services.buffer.buffer_stats import BufferStats
from ludus.services.buffer.nest_buffer import Item
from ludus.trial.named.buffer import RemoteBuffer
from ludus.trial.named.merge import merge
from ludus.trial.named.model import RemoteModel
from ludus.trial.named.trainer import should_stop, world_size

__all__ = ["train_policy"]

_LOG = logging.getLogger(__name__)
_WAIT_S = 0.5
_MOST_AT_ONCE = 64


def train_policy(
    model: str,
    buffer: str,
    *,
    algorithm: str = "ppo",
    steps: int = 1_000_000,
    batch_steps: int = 2048,
    max_lag: int = 16,
    seed: int = 0,
    threads: int = 1,
    **settings: Any,
) -> None:
    """Learn until `steps` steps of games were learnt from, or the trial is asked to stop.

    An update is made of segments that hold `batch_steps` steps together; those that were played by versions more than
    `max_lag` old are dropped and counted. `settings` are the algorithm's. For one worker: raises `ConfigError` if there
    are several.
    """
    if world_size() > 1:
        raise ConfigError(
            f"train_policy learns in one worker, and this trainer has {world_size()}: each would publish weights of "
            "its own. Give RemoteTrainer num_workers=1, and train_policy more threads."
        )
    torch.set_num_threads(threads)
    remote = RemoteModel(model)
    policy = remote.get_model()
    if not isinstance(policy, ServedPolicy):
        raise DataError(f"the model {model!r} is a {type(policy).__name__}; train_policy trains a ServedPolicy")
    config = replace(registry.config_class(algorithm)(), settings)
    learner = Learner(registry.algorithm_class(algorithm)(config), policy, seed=seed)
    first = published = learner.version = remote.step

    def publish(learner: Learner) -> None:
        nonlocal published
        if learner.version != published:  # a flow that waits asks for it again; a named model keeps what it has
            published = learner.version = remote.publish_weights(policy.weights())

    flow = AsyncFlow(
        _NamedSegments(RemoteBuffer(buffer)),
        learner,
        publish=publish,
        batch_segments=1,
        batch_steps=batch_steps,
        max_lag=max_lag,
    )
    num_learnt = 0
    num_stale = 0.0
    while num_learnt < steps and not should_stop():
        report = flow.turn(num_learnt / steps)
        if report is None:
            continue
        num_learnt += report.num_steps
        num_stale = report.counts["segments_stale"]
        for name, metric in report.metrics.items():
            merge(f"train/{name}", metric)
        merge("train/lag", report.lag)
        merge("train/segments_stale", num_stale)
        merge("train/steps", num_learnt)
        merge("train/update_seconds", report.seconds["train"] + report.seconds["publish"])
    _LOG.info("%d versions from %d steps; %d segments were too old", learner.version - first, num_learnt, num_stale)


class _NamedSegments:
    """A named buffer as a flow takes from it: fetched many at a time, each without an id."""

    def __init__(self, buffer: RemoteBuffer) -> None:
        self._buffer = buffer
        self._taken: deque[Item] = deque()

    def take(self, num_segments: int, *, timeout_s: float) -> list[Item]:
        if len(self._taken) < num_segments:
            nests = self._buffer.take(_MOST_AT_ONCE, timeout_s=max(timeout_s, _WAIT_S))
            self._taken.extend(Item(segment=Segment.from_nest(nest), segment_id="") for nest in nests)
        if len(self._taken) < num_segments:
            return []
        return [self._taken.popleft() for _ in range(num_segments)]

    def statistics(self) -> BufferStats:
        return BufferStats(**self._buffer.statistics())

    def close(self) -> None:
        """The buffer is the trial's."""
