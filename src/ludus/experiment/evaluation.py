"""How good a policy is: whole episodes, played greedily or by samples, with the env arguments of evaluation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import envs
from ludus.core import TimeStep, VectorEnv
from ludus.errors import EnvError
from ludus.experiment.config import Config
from ludus.experiment.search_player import SearchPlayer
from ludus.learn.policies.policy import Policy

__all__ = ["Evaluation", "PolicyPlayer", "evaluate", "longest_episode", "play", "step_budget"]

_LOG = logging.getLogger(__name__)
_MOST_ENVS = 128
_FEWEST_STEPS, _MOST_STEPS = 1_000, 27_000  # of one episode; as many as ALE's longest
_FEWEST_TOTAL_STEPS = 100_000  # of all episodes together


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One return for each agent's episode. Of those that were cut off, what was played until then.

    `agent_of` and `episode_of` say, for each return, the index of its agent in `agents` and the number of the env's
    episode: returns of one episode have the same.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    num_cut_off: int = 0
    agents: tuple[str, ...] = ("agent",)
    agent_of: tuple[int, ...] = ()
    episode_of: tuple[int, ...] = ()

    @property
    def num_episodes(self) -> int:
        return len(self.returns)

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        return float(np.std(self.returns))

    def mean_of(self, agent: int) -> float | None:
        """The mean return of one agent; `None` if it took part in no episode."""
        own = [total for total, which in zip(self.returns, self.agent_of, strict=True) if which == agent]
        return float(np.mean(own)) if own else None


Choose = Callable[[TimeStep], NDArray[Any]]
"""One action for each row."""


def evaluate(
    policy: Policy | SearchPlayer,
    config: Config,
    *,
    episodes: int,
    seed: int,
    greedy: bool = True,
    max_steps: int | None = None,
    env_args: Mapping[str, Any] | None = None,
    max_total_steps: int | None = None,
    warns: bool = True,
) -> Evaluation:
    """Play so many episodes, each env the same number of them, so that short ones are not over-represented.

    One that has not ended after `max_steps` (`None`: as configured, or 27,000) counts as it is then, with a warning
    unless `warns` is false; its env plays no further ones. The same goes for all that have not ended after
    `max_total_steps` steps of all envs together. `env_args` go over the configured ones of evaluation.
    Raises `EnvError` if envs keep raising.
    """
    num_envs = min(episodes, _MOST_ENVS)
    arguments = {**config.eval_env_args, **(env_args or {})}
    vector_env = envs.make(config.train.env, num_envs, num_threads=config.train.env_threads, **arguments)
    try:
        player = PolicyPlayer(policy, vector_env.num_rows, seed=seed, greedy=greedy)
        return play(
            vector_env,
            player,
            config,
            episodes=episodes,
            seed=seed,
            max_steps=max_steps,
            max_total_steps=max_total_steps,
            warns=warns,
        )
    finally:
        vector_env.close()


def play(
    vector_env: VectorEnv,
    choose: Choose,
    config: Config,
    *,
    episodes: int,
    seed: int,
    max_steps: int | None,
    max_total_steps: int | None = None,
    warns: bool = True,
) -> Evaluation:
    """Episodes in these envs by whatever chooses the actions."""
    max_steps = max_steps or config.train.eval_max_steps or _MOST_STEPS
    max_total = None if max_total_steps is None else max_total_steps * len(vector_env.spec.agents)
    tally = _Tally(vector_env.num_rows, -(-episodes // vector_env.num_envs), max_steps, max_total)
    now = vector_env.reset(seed)
    while not tally.is_full:
        action = choose(now)
        tally.length += now.active
        now = vector_env.step(action)
        tally.add(now)
    played = tally.played(episodes, agents=vector_env.spec.agents)
    if not played.returns:
        raise EnvError(
            f"in {max_steps} steps no agent of {config.train.env} came to act: there is nothing to evaluate."
        )
    if played.num_cut_off and warns:
        _LOG.warning(
            "%d of %d episodes of %s had not ended after %d steps and were cut off there: the return is of what was "
            "played. More steps: --eval-max-steps.",
            played.num_cut_off,
            played.num_episodes,
            config.train.env,
            min(max_steps, max(played.lengths)),
        )
    return played


def step_budget(config: Config, lengths: Iterable[int], *, episodes: int) -> int | None:
    """Steps that so many episodes may take together, after training ones of these lengths: far more than episodes that
    end will need. Where the longest episode is configured, it alone counts."""
    if config.train.eval_max_steps:
        return None
    return max(_FEWEST_TOTAL_STEPS, episodes * max(_FEWEST_STEPS, 5 * max(lengths, default=0)))


def longest_episode(config: Config, lengths: Iterable[int], *, times: int = 20) -> int:
    """How long an episode may be, after training ones of these lengths; where it is not configured, so many times."""
    longest = max(lengths, default=_MOST_STEPS)
    return config.train.eval_max_steps or min(_MOST_STEPS, max(_FEWEST_STEPS, times * longest))


class PolicyPlayer:
    """A policy that chooses for all rows of a vector env, from the start of all episodes on."""

    def __init__(self, policy: Policy | SearchPlayer, num_rows: int, *, seed: int, greedy: bool) -> None:
        self._policy, self._state = policy, policy.initial_state(num_rows)
        self._rng = np.random.default_rng([seed, 0xE7A1])
        self._greedy = greedy

    def __call__(self, now: TimeStep) -> NDArray[Any]:
        if isinstance(self._policy, SearchPlayer):
            return self._search(self._policy, now)
        action, _, self._state = self._policy.act(
            now.obs, self._state, now.first, self._rng, now.mask, greedy=self._greedy
        )
        return action

    def _search(self, player: SearchPlayer, now: TimeStep) -> NDArray[Any]:
        """Only for those whose turn it is."""
        rows = np.flatnonzero(now.active)
        boards = now.global_state[rows // (len(now.active) // len(now.global_state))]
        action = np.zeros(len(now.active), np.int64)
        action[rows] = player.act(
            now.obs[rows], None, now.first[rows], self._rng, None, greedy=self._greedy, boards=boards
        )[0]
        return action


class _Tally:
    """What each row has played: `each` episodes, or as many of its env's first `each` as it took part in."""

    def __init__(self, num_rows: int, each: int, max_steps: int, max_total: int | None = None) -> None:
        self.length: NDArray[np.int64] = np.zeros(num_rows, np.int64)  # of the present episode, as is `_total`
        self.is_full = False
        self._total = np.zeros(num_rows)
        self._each = each
        self._max_steps = max_steps
        self._max_total = max_total  # steps of all rows together
        self._num_total = 0
        self._episodes: list[list[tuple[float, int, bool, int]]] = [[] for _ in range(num_rows)]
        self._is_full = np.zeros(num_rows, np.bool_)
        self._num_steps = 0
        self._started_at: NDArray[np.int64] = np.zeros(num_rows, np.int64)
        self._num_over: NDArray[np.int64] = np.zeros(num_rows, np.int64)  # episodes of its env

    def add(self, now: TimeStep) -> None:
        """What a step led to."""
        self._num_steps += 1
        self._num_total += int(np.count_nonzero(~self._is_full))
        self._total += now.reward
        if now.failed.any():  # restarted: what was played so far is void
            self._forget(now.failed)
        done = now.terminated | now.truncated
        if done.any():
            self._note(done, is_cut_off=False)
            self._forget(done)
        if now.first.any():
            started = now.first & ~now.failed
            self._started_at[started] = self._num_steps
            self._num_over += started
            self._fill(self._num_over >= self._each)
        is_spent = self._max_total is not None and self._num_total >= self._max_total
        if is_spent or self._num_steps >= self._max_steps:
            late = (self._num_steps - self._started_at >= self._max_steps) | is_spent
            self._note(late & (self.length > 0), is_cut_off=True)
            self._fill(late)

    def played(self, num_episodes: int, *, agents: tuple[str, ...]) -> Evaluation:
        """Of the first envs' episodes so many, each of them with all its agents."""
        chosen = [
            (row, *episode)
            for row, episodes in enumerate(self._episodes)
            for episode in episodes[: max(0, num_episodes - row // len(agents) * self._each)]
        ]
        return Evaluation(
            returns=tuple(total for _, total, _, _, _ in chosen),
            lengths=tuple(length for _, _, length, _, _ in chosen),
            num_cut_off=sum(is_cut_off for _, _, _, is_cut_off, _ in chosen),
            agents=agents,
            agent_of=tuple(row % len(agents) for row, *_ in chosen),
            episode_of=tuple(row // len(agents) * self._each + number for row, _, _, _, number in chosen),
        )

    def _note(self, rows: NDArray[np.bool_], *, is_cut_off: bool) -> None:
        for row in np.flatnonzero(rows & ~self._is_full):
            number = int(self._num_over[row])
            self._episodes[row].append((float(self._total[row]), int(self.length[row]), is_cut_off, number))
            self._is_full[row] = len(self._episodes[row]) >= self._each
        self.is_full = bool(self._is_full.all())

    def _forget(self, rows: NDArray[np.bool_]) -> None:
        self._total[rows], self.length[rows] = 0.0, 0

    def _fill(self, rows: NDArray[np.bool_]) -> None:
        self._is_full |= rows
        self.is_full = bool(self._is_full.all())
