"""A training run that learns from datasets: from them alone, in one process, or mixed with what it collects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from ludus import errors
from ludus.core import EnvSpec
from ludus.experiment.config import Config
from ludus.experiment.datasets.dataset import Dataset
from ludus.experiment.datasets.replay import DatasetReplay, MixedReplay
from ludus.experiment.datasets.steps import check_spec
from ludus.experiment.flows.offline import OfflineFlow
from ludus.experiment.flows.replay import Replay
from ludus.experiment.training import LoopWriter, Training
from ludus.learn.algorithms.replay_algorithm import ReplayConfig
from ludus.learn.algorithms.replay_learner import AnyLearner, ReplayLearner
from ludus.telemetry.metrics_file import MetricsWriter

__all__ = ["make_dataset_replay", "offline_training", "with_datasets"]

_NUM_BATCHES = 16  # of one turn: between turns a run can be stopped and kept


def offline_training(
    config: Config,
    folder: Path,
    env: EnvSpec,
    learner: AnyLearner,
    *,
    began: float | None = None,
    on_progress: Callable[[int, dict[str, float]], None] | None = None,
    open_metrics: Callable[..., LoopWriter] = MetricsWriter,
) -> Training:
    """Raises `ConfigError` if there is no dataset, or none that this algorithm and this env can learn from."""
    name = config.train.algorithm
    if not isinstance(learner, ReplayLearner) or learner.algorithm.learns_from != "transitions":
        raise errors.ConfigError(f"{name} does not learn from single transitions, and datasets are drawn as such.")
    if learner.algorithm.config.prioritised:
        raise errors.ConfigError("prioritised=yes is not for datasets: their steps are drawn uniformly, or by weight.")
    if learner.policy.is_recurrent:
        raise errors.ConfigError(f"{name} learns from single transitions, without recurrent state: use recurrent=none.")
    flow = OfflineFlow(make_dataset_replay(config, env), learner, num_batches=_NUM_BATCHES)
    if config.is_game:  # nothing can be evaluated in them from here
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, eval_episodes=0))
    return Training(
        config,
        folder,
        flow,
        learner,
        began=began,
        on_progress=on_progress,
        agents=env.agents,
        open_metrics=open_metrics,
    )


def with_datasets(config: Config, env: EnvSpec, replay: Replay, *, rank: int = 0) -> Replay:
    """What a run collects, mixed with its datasets, if it has any. Raises `ConfigError` if one does not fit."""
    if not config.train.dataset:
        return replay
    datasets, seed = make_dataset_replay(config, env, rank=rank), config.train.seed
    return MixedReplay(replay, datasets, share=config.train.dataset_share, seed=[seed, rank])


def make_dataset_replay(config: Config, env: EnvSpec, *, rank: int = 0) -> DatasetReplay:
    """What is drawn from `config.train.dataset`. Raises `ConfigError` if there is none, or if one does not fit."""
    train, algorithm = config.train, config.algorithm
    assert isinstance(algorithm, ReplayConfig)
    if not train.dataset:
        raise errors.ConfigError(
            f"{train.algorithm} learns from datasets, and there is none: give dataset=DIR. `ludus dataset --help` says "
            "how to make one from recordings, from a trained policy or from Minari."
        )
    try:
        datasets = [Dataset.open(folder) for folder in train.dataset]
        for dataset in datasets:
            check_spec(dataset, env)
    except errors.DataError as error:
        raise errors.ConfigError(f"{error}.") from None
    return DatasetReplay(
        datasets,
        weights=train.dataset_weights,
        batch_size=algorithm.batch_size,
        gamma=algorithm.gamma,
        n_step=algorithm.n_step,
        seed=[train.seed, rank],
    )
