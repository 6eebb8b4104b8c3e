"""Matches: a policy against an opponent, where agents compete and the mean return of all says nothing.

found = play_matches(policy, None, config, num_agents=2, episodes=100, seed=1, greedy=True, max_steps=1_000)
found.win_rate, found.return_mean
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import envs
from ludus.core import TimeStep
from ludus.data.actions import ActionSpec, Continuous
from ludus.experiment.config import Config
from ludus.experiment.evaluation import Evaluation, PolicyPlayer, play
from ludus.experiment.search_player import SearchPlayer
from ludus.learn.policies.policy import Policy

__all__ = ["Matches", "is_competitive", "play_matches"]

_MOST_ENVS = 128


@dataclass(frozen=True, kw_only=True)
class Matches:
    """`win_rate`: the share of episodes in which the policy's agent returned more than the mean of the others; a draw
    counts half. `return_mean`: of the policy's agent."""

    win_rate: float
    return_mean: float
    num_episodes: int


def play_matches(
    policy: Policy | SearchPlayer,
    opponent: Policy | None,
    config: Config,
    *,
    num_agents: int,
    episodes: int,
    seed: int,
    greedy: bool,
    max_steps: int | None,
    max_total_steps: int | None = None,
    env_args: Mapping[str, Any] | None = None,
) -> Matches:
    """The policy plays one of `num_agents`, the opponent (`None`: random play) all others.

    Each agent is played equally often, in at least `episodes` episodes, in the envs of evaluation. `max_steps`,
    `max_total_steps` and `env_args` are those of `evaluate`.
    """
    arguments = {**config.eval_env_args, **(env_args or {})}
    num_envs = -(-min(episodes, _MOST_ENVS) // num_agents) * num_agents
    each = -(-episodes // num_envs)
    vector_env = envs.make(config.train.env, num_envs, num_threads=config.train.env_threads, **arguments)
    try:
        num_rows = vector_env.num_rows
        own = PolicyPlayer(policy, num_rows, seed=seed, greedy=greedy)
        other = (
            _RandomPlayer(policy, vector_env.spec.action, num_rows, seed=seed + 1)
            if opponent is None
            else PolicyPlayer(opponent, num_rows, seed=seed + 1, greedy=greedy)
        )
        rows = np.arange(num_rows)
        is_own = rows % num_agents == rows // num_agents % num_agents  # env w: the policy plays agent w % num_agents

        def choose(now: TimeStep) -> NDArray[Any]:
            action = own(now)
            return np.where(is_own.reshape(-1, *[1] * (action.ndim - 1)), action, other(now))

        played = play(
            vector_env,
            choose,
            config,
            episodes=num_envs * each,
            seed=seed,
            max_steps=max_steps,
            max_total_steps=max_total_steps,
        )
    finally:
        vector_env.close()
    return _result(played, each)


def is_competitive(*evaluations: Evaluation) -> bool:
    """Whether agents win what others lose: their returns differ within an episode, or always have the same sum."""
    games = [game for played in evaluations for game in _games(played).values() if len(game) > 1]
    differ = any(max(game.values()) - min(game.values()) > 1e-6 for game in games)
    sums = [sum(game.values()) for game in games]
    return bool(games) and (differ or max(sums) - min(sums) <= 1e-6)


class _RandomPlayer:
    """Any allowed action, all with the same probability; unbounded numbers are drawn from -1 to 1."""

    def __init__(self, policy: Policy | SearchPlayer, action: ActionSpec, num_rows: int, *, seed: int) -> None:
        self._head = policy.head
        self._rng = np.random.default_rng([seed, 0x7A2D])
        self._num_rows = num_rows
        self._bounds = (action.low, action.high) if isinstance(action, Continuous) else None

    def __call__(self, now: TimeStep) -> NDArray[Any]:
        if self._bounds is None:  # equal logits; where a share of random choices is explored by, all of them
            params = np.zeros((self._num_rows, self._head.num_params), np.float32)
            params[:, self._head.num_outputs + self._head.num_free :] = 1.0
            return self._head.choose(params, self._rng, now.mask, greedy=False)[0]
        low, high = (np.asarray(bound) for bound in self._bounds)
        low, high = np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)
        return self._rng.uniform(low, high, (self._num_rows, len(low))).astype(np.float32)


def _games(played: Evaluation) -> Mapping[int, dict[int, float]]:
    """Episode → agent → return."""
    games: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for episode, agent, total in zip(played.episode_of, played.agent_of, played.returns, strict=True):
        games[episode][agent] = total
    return games


def _result(played: Evaluation, each: int) -> Matches:
    scores, returns = [], []
    for episode, game in _games(played).items():
        seat = episode // each % len(played.agents)
        others = [total for agent, total in game.items() if agent != seat]
        if seat not in game or not others:  # it took no part, or nobody else did
            continue
        lead = game[seat] - float(np.mean(others))
        scores.append(0.5 if abs(lead) <= 1e-6 else float(lead > 0.0))
        returns.append(game[seat])
    if not scores:
        return Matches(win_rate=float("nan"), return_mean=float("nan"), num_episodes=0)
    return Matches(win_rate=float(np.mean(scores)), return_mean=float(np.mean(returns)), num_episodes=len(scores))
