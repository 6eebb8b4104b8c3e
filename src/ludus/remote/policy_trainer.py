"""Training of a policy from the segments that its actors keep: for `RemoteTrainer().train(train=train_policy, …)`."""

from __future__ import annotations

import logging
import time
from typing import Any

import torch

from ludus.data.segment import Segment
from ludus.errors import ConfigError, DataError
from ludus.learn.algorithms import registry
from ludus.learn.algorithms.learner import Learner, Sample
from ludus.learn.policies.served import ServedPolicy
from ludus.options import replace
from ludus.remote.buffer import RemoteBuffer
from ludus.remote.merge import merge
from ludus.remote.model import RemoteModel
from ludus.remote.trainer import should_stop, world_size

__all__ = ["train_policy"]

_LOG = logging.getLogger(__name__)
_WAIT_S = 0.5


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
    remote, source = RemoteModel(model), RemoteBuffer(buffer)
    policy = remote.get_model()
    if not isinstance(policy, ServedPolicy):
        raise DataError(f"the model {model!r} is a {type(policy).__name__}; train_policy trains a ServedPolicy")
    config = replace(registry.config_class(algorithm)(), settings)
    learner = Learner(registry.algorithm_class(algorithm)(config), policy, seed=seed)
    first = learner.version = remote.step
    ready: list[Segment] = []
    num_learnt = num_stale = 0
    while num_learnt < steps and not should_stop():
        for nest in source.take(64, timeout_s=_WAIT_S):
            segment = Segment.from_nest(nest)
            if learner.version - int(segment.version.min()) > max_lag:
                num_stale += 1
            else:
                ready.append(segment)
        num_ready = sum(segment.num_active for segment in ready)
        if num_ready < batch_steps:
            continue
        began = time.perf_counter()
        batch = Segment.concat(ready)
        ready.clear()
        lag = float((learner.version - batch.version).mean())
        metrics = learner.update(Sample(batch), progress=num_learnt / steps).metrics
        learner.version = remote.publish_weights(policy.weights())
        num_learnt += num_ready
        for name, metric in metrics.items():
            merge(f"train/{name}", metric)
        merge("train/lag", lag)
        merge("train/segments_stale", num_stale)
        merge("train/steps", num_learnt)
        merge("train/update_seconds", time.perf_counter() - began)
    _LOG.info("%d versions from %d steps; %d segments were too old", learner.version - first, num_learnt, num_stale)
