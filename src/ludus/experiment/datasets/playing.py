"""A policy plays, and what it plays becomes a dataset: experts, or as good as it gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ludus import envs, errors
from ludus.core import EnvSpec, TimeStep, VectorEnv
from ludus.data import nest as nests
from ludus.experiment.checkpoints import CheckpointStore
from ludus.experiment.datasets.dataset import Dataset, DatasetWriter
from ludus.experiment.datasets.episode import EpisodeBuilder, RecordedEpisode
from ludus.experiment.evaluation import Choose, PolicyPlayer
from ludus.experiment.player import load_player
from ludus.experiment.saved_config import load_config

__all__ = ["dataset_from_play", "play_episodes"]

_MOST_ENVS = 32
_MOST_STEPS = 100_000  # of one episode


def dataset_from_play(
    trial: Path,
    folder: Path,
    *,
    episodes: int,
    seed: int = 0,
    greedy: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> Dataset:
    """Episodes of a trial's newest weights in its env, as in training: with its arguments there.

    Raises `CheckpointError`, `EnvError` or `ConfigError` if it cannot be played; then nothing is written.
    """
    config = load_config(trial)
    policy = load_player(trial).policy
    step, _ = CheckpointStore(trial / "checkpoints").load(warns=False)
    vector_env = envs.make(config.train.env, min(episodes, _MOST_ENVS), **config.env_args)
    try:
        choose = PolicyPlayer(policy, vector_env.num_rows, seed=seed, greedy=greedy)
        source = {"kind": "play", "trial": str(trial.absolute()), "step": step, "seed": seed, "greedy": greedy}
        source |= {"env": config.train.env, "env_args": config.env_args}
        with DatasetWriter(folder, vector_env.spec, source=source) as writer:
            play_episodes(vector_env, choose, writer.add, episodes=episodes, seed=seed, on_progress=on_progress)
    finally:
        vector_env.close()
    return Dataset.open(folder)


def play_episodes(
    vector_env: VectorEnv,
    choose: Choose,
    add: Callable[[RecordedEpisode], None],
    *,
    episodes: int,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> None:
    """Each env plays the same number, so that short ones are not over-represented; `add` is given every agent's own.

    Steps at which an agent cannot act are left out, and what they bring counts for its last action.
    Raises `EnvError` if an episode does not end in 100,000 steps.
    """
    spec, num_agents = vector_env.spec, len(vector_env.spec.agents)
    base, more = divmod(episodes, vector_env.num_envs)
    left = [base + (number < more) for number in range(vector_env.num_envs) for _ in range(num_agents)]
    builders = [EpisodeBuilder(spec) for _ in left]
    played = num_steps = 0
    now = vector_env.reset(seed)
    while any(left):
        for row, builder in enumerate(builders):
            _see(builder, now, row, spec)
        action = choose(now)
        for row in np.flatnonzero(now.active).tolist():
            builders[row].act(action[row].copy())
        now = vector_env.step(action)
        num_steps += 1
        for row, builder in enumerate(builders):
            if now.failed[row]:  # the env was restarted: what was played is void
                builders[row] = EpisodeBuilder(spec)
                continue
            builder.earn(float(now.reward[row]))
            if now.terminated[row] or now.truncated[row]:
                builder.see(nests.map(lambda leaf, row=row: leaf[row].copy(), now.obs))
                episode = builder.end(terminated=bool(now.terminated[row]))
                builders[row] = EpisodeBuilder(spec)
                if left[row] and episode is not None:
                    add(episode)
                    left[row] -= 1
                    played += 1
                    num_steps = 0
                    if on_progress is not None:
                        on_progress(played)
        if num_steps >= _MOST_STEPS:
            raise errors.EnvError(f"{spec.name}: no episode ended in {_MOST_STEPS} steps; no dataset was made")


def _see(builder: EpisodeBuilder, now: TimeStep, row: int, spec: EnvSpec) -> None:
    if now.active[row]:
        mask = now.mask[row].copy() if spec.has_mask and now.mask is not None else None
        builder.see(nests.map(lambda leaf: leaf[row].copy(), now.obs), mask)
