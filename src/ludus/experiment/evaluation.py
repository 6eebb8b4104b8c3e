"""How good a policy is: whole episodes, greedily played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ludus import envs
from ludus.errors import EnvError
from ludus.experiment.config import Config
from ludus.learn.policies.policy import Policy

__all__ = ["Evaluation", "evaluate"]

_MOST_WORLDS = 128
_MOST_STEPS = 200_000


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One return for each agent's episode."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def num_episodes(self) -> int:
        return len(self.returns)

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        return float(np.std(self.returns))


def evaluate(policy: Policy, config: Config, *, episodes: int, seed: int, greedy: bool = True) -> Evaluation:
    """Play so many episodes, each world the same number of them, so that short ones are not over-represented."""
    num_worlds = min(episodes, _MOST_WORLDS)
    worlds = envs.make(config.train.env, num_worlds, num_threads=config.train.env_threads, **config.env_args)
    try:
        return _play(worlds, policy, -(-episodes // num_worlds), episodes, seed, greedy)
    finally:
        worlds.close()


def _play(worlds: Any, policy: Policy, each: int, episodes: int, seed: int, greedy: bool) -> Evaluation:
    num_rows, num_agents = worlds.num_rows, len(worlds.spec.agents)
    runner, memory = policy.runner(), policy.initial_memory(num_rows)
    rng = np.random.default_rng([seed, 0xE7A1])
    total, length = np.zeros(num_rows), np.zeros(num_rows, np.int64)
    ended: list[list[tuple[float, int]]] = [[] for _ in range(num_rows)]
    now = worlds.reset(seed)
    for _step in range(_MOST_STEPS):
        params, memory = runner(now.obs, memory, now.first)
        action = policy.head.mode(params, now.mask) if greedy else policy.head.sample(params, rng, now.mask)[0]
        length += now.active
        now = worlds.step(action)
        total += now.reward
        if now.failed.any():  # begun anew: what was played so far is void
            total[now.failed], length[now.failed] = 0.0, 0
        done = now.terminated | now.truncated
        if done.any():
            for row in np.flatnonzero(done):
                ended[row].append((float(total[row]), int(length[row])))
            total[done], length[done] = 0.0, 0
            if min(len(row) for row in ended) >= each:
                break
    else:
        raise EnvError(f"an episode of {worlds.spec.name} did not end within {_MOST_STEPS} steps of evaluation.")
    chosen = [episode for row in ended for episode in row[:each]][: episodes * num_agents]
    return Evaluation(returns=tuple(t for t, _ in chosen), lengths=tuple(n for _, n in chosen))
