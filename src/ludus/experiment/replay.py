"""What a training run keeps of all that was collected, and how it draws from it."""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec
from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.data.segment import Segment
from ludus.data.team import joined_spec
from ludus.data.transitions import Transitions
from ludus.envs import registry as envs_by_name
from ludus.errors import ConfigError
from ludus.experiment.config import Config
from ludus.learn.algorithms import registry
from ludus.learn.algorithms.replay_algorithm import ReplayConfig, ReplayItems
from ludus.learn.algorithms.replay_learner import Replayed, ReplayLearner
from ludus.services.buffer.limiters import Limiter, MinSize, SamplesPerInsert
from ludus.services.buffer.selectors import Fifo, Prioritised, Uniform
from ludus.services.buffer.table import TableSettings
from ludus.services.buffer.trajectories import TrajectoryStore
from ludus.services.buffer.trajectory_spec import TrajectorySpec

__all__ = ["TrainingReplay", "check_capacity", "make_replay"]

_LOG = logging.getLogger(__name__)
_TABLE = "replay"
_MOST_SAVED = 1 << 29  # bytes of entries in a checkpoint; more would take longer than the time between two of them
_ALE_FRAMES = 4  # of a stack, unless `stack_num` says otherwise
_MOST_BATCHES = 64


def make_replay(
    config: Config, env: EnvSpec, learner: ReplayLearner, *, segment_steps: int, rank: int = 0
) -> TrainingReplay:
    """Of one trainer. The rate limiter of the first rank is that of all: see `ReplayFlow`.

    Raises `ConfigError` if what is collected at once, or an item, does not fit.
    """
    algorithm, items = config.algorithm, learner.algorithm.items()
    assert isinstance(algorithm, ReplayConfig)
    check_capacity(config, env, items, segment_steps=segment_steps)
    if rank == 0 and config.train.steps < algorithm.min_size * config.train.trainers:
        _LOG.warning(
            "nothing will be learnt: learning begins after min_size=%d steps%s, and the run ends after steps=%d. "
            "Set a smaller min_size, or more steps.",
            algorithm.min_size,
            f" of each of {config.train.trainers} trainers" if config.train.trainers > 1 else "",
            config.train.steps,
        )
    kept: dict[str, Any] = {
        "obs": env.obs,
        "action": env.action.array,
        "mask_size": env.action.mask_size if env.has_mask else 0,
        "state": learner.policy.state_spec if learner.algorithm.learns_from == "sequences" else None,
    }
    if learner.algorithm.group == "env":
        kept = joined_spec(**kept, num_agents=len(env.agents), global_state=env.global_state)
    else:
        kept["frame_stack"] = _frame_stack(config)
    return TrainingReplay(
        algorithm,
        TrajectorySpec(**kept),
        items,
        segment_steps=segment_steps,
        seed=[config.train.seed, 0x2EB1, rank],
        has_limiter=rank == 0,
    )


def check_capacity(config: Config, env: EnvSpec, items: ReplayItems, *, segment_steps: int) -> None:
    """Raise `ConfigError` if a segment, an item or `min_size` does not fit. `segment_steps`: of what is inserted."""
    algorithm = config.algorithm
    assert isinstance(algorithm, ReplayConfig)
    capacity, item = algorithm.capacity, items.burn_in + items.length
    if algorithm.min_size > capacity:
        raise ConfigError(f"min_size={algorithm.min_size} is more than capacity={capacity} ever holds.")
    is_joined = registry.algorithm_class(config.train.algorithm).group == "env"
    num_rows = algorithm.num_envs * (1 if is_joined else len(env.agents))
    num_entries = (segment_steps + 1) * (1 if config.is_game else num_rows)  # a session is one row
    num_entries *= 1 if is_joined else _frame_stack(config)
    if num_entries > capacity:
        raise ConfigError(
            f"capacity={capacity} is too small for what is inserted at once: up to {num_entries} steps, by "
            f"num_envs={algorithm.num_envs} and num_steps={algorithm.num_steps}. Set a larger capacity."
        )
    if item >= capacity:
        name = "n_step" if items.kind == "transition" else "sequence_length"
        raise ConfigError(
            f"{name}={item} does not fit into capacity={capacity}. Set a smaller {name}, or a larger capacity."
        )


def _frame_stack(config: Config) -> int:
    is_ale = envs_by_name.adapter_of(config.train.env) == "ale"
    return int(config.env_args.get("stack_num", _ALE_FRAMES)) if is_ale else 1


class TrainingReplay:
    """The trajectories of one trainer in memory, and one table over them; `ludus.experiment.flows.replay.Replay`."""

    def __init__(
        self,
        config: ReplayConfig,
        spec: TrajectorySpec,
        items: ReplayItems,
        *,
        segment_steps: int = 1,
        seed: Any = 0,
        has_limiter: bool = True,
    ) -> None:
        """`segment_steps`: of the segments that are inserted."""
        self._config = config
        self._kind = items.kind
        # Of sequences with a recurrent state, one starts with each row of a segment: there it is known.
        self._steps_per_item = segment_steps if items.kind == "sequence" and spec.state is not None else 1
        limiter, self._most_at_once = _limiter(config, segment_steps, self._steps_per_item, has_limiter)
        self._rng = np.random.default_rng(seed)
        sampler = Prioritised(exponent=config.priority_exponent) if config.prioritised else Uniform()
        settings = TableSettings(capacity=config.capacity, sampler=sampler, remover=Fifo(), limiter=limiter)
        self._num_bytes = sum(
            int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize for leaf in spec.columns().values()
        )
        self._store = self._allocate(spec)
        self._table = self._store.add_table(
            _TABLE, settings, kind=items.kind, length=items.length, burn_in=items.burn_in
        )

    def _allocate(self, spec: TrajectorySpec) -> TrajectoryStore:
        """Memory is given when it is first written to: unless it is said here, too much is noticed late."""
        capacity = self._config.capacity
        needed, there = capacity * self._num_bytes / 1e9, _memory_bytes() / 1e9
        try:
            store = TrajectoryStore(spec, num_entries=capacity)
        except MemoryError:
            raise ConfigError(
                f"capacity={capacity} takes {needed:.1f} GB, which cannot be had: this machine has {there:.1f} GB of "
                "memory. Set a smaller capacity."
            ) from None
        if needed > there:
            _LOG.warning(
                "capacity=%d takes %.1f GB once it is full, and this machine has %.1f GB of memory. Set a smaller "
                "capacity, unless the run ends before.",
                capacity,
                needed,
                there,
            )
        return store

    def insert(self, segment: Segment, stream: str) -> None:
        self._store.insert(segment, stream)

    def has_room(self) -> bool:
        return self._table.can_insert(1)

    def num_ready(self, most: int) -> int:
        size, num = self._config.batch_size, 0
        most = min(most, self._most_at_once)
        while num < most and self._table.can_sample((num + 1) * size):
            num += 1
        return num

    def draw(self, num_batches: int, *, progress: float) -> Replayed:
        """`num_batches` times `batch_size` rows. Those of prioritised replay have weights that correct the bias."""
        config, num = self._config, num_batches * self._config.batch_size
        batch: Transitions | Segment
        if self._kind == "transition":
            batch, keys, probabilities = self._store.sample_transitions(_TABLE, num, self._rng, gamma=config.gamma)
        else:
            batch, keys, probabilities = self._store.sample_sequences(_TABLE, num, self._rng)
        if not config.prioritised:
            return Replayed(batch)
        start = config.importance_exponent
        exponent = start + (1.0 - start) * min(progress, 1.0)
        weight = (probabilities * self._table.size) ** -exponent
        weight /= weight.reshape(num_batches, -1).max(1).repeat(config.batch_size)
        return Replayed(batch, keys, weight.astype(np.float32))

    def update_priorities(self, keys: NDArray[np.int64], priorities: NDArray[Any]) -> None:
        self._table.update_priorities(keys, priorities + 1e-6)

    def counts(self) -> dict[str, float]:
        stats = self._table.statistics()
        return {
            "replay_size": stats.size,
            "replay_inserted": stats.num_inserted,
            "replay_sampled": stats.num_sampled,
            "samples_per_insert": stats.num_sampled / max(1, stats.num_inserted),
        }

    def save(self) -> Nest:
        """Everything, unless that is too much for a checkpoint: then a resumed run collects `min_size` steps first."""
        size = min(self._store.num_inserted, self._store.num_entries) * self._num_bytes
        if size > _MOST_SAVED:
            _LOG.warning(
                "the replay has %.1f GB, too much for a checkpoint: a run that is resumed from it begins with an empty "
                "replay. A smaller capacity would be kept.",
                size / 1e9,
            )
            return None
        return {"store": self._store.save(), "rng": save_rng(self._rng)}

    def restore(self, saved: Nest) -> bool:
        if saved is None:
            return False
        self._store.restore(saved["store"])
        restore_rng(self._rng, saved["rng"])
        return True

    def close(self) -> None:
        """There is nothing outside of memory."""


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _limiter(config: ReplayConfig, segment_steps: int, steps_per_item: int, has_limiter: bool) -> tuple[Limiter, int]:
    """And how many batches may be drawn at once."""
    ratio = config.updates_per_step * config.batch_size * steps_per_item
    min_size = max(1, config.min_size // steps_per_item)
    if not has_limiter or ratio == 0.0:
        return MinSize(min_size=min_size if has_limiter else 1), _MOST_BATCHES
    # A band that a segment of every env, or a batch, fits into on either side, or nobody could go on.
    of_segment = ratio * config.num_envs * segment_steps / steps_per_item
    tolerance = max(2.0 * config.batch_size, 2.0 * of_segment, ratio)
    limiter = SamplesPerInsert(ratio=ratio, min_size=min_size, tolerance=tolerance)
    return limiter, max(1, int(2.0 * tolerance) // config.batch_size)
