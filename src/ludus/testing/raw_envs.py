"""Envs as their library plays them, without an adapter: what `VectorEnvConformance` compares an adapter with.

    def raw(self, seed):
        return RawEnv(MyEnv(), seed)

All of them play env 0 of a group that was reset with `seed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.envs import seeds, spaces

__all__ = ["Raw", "RawAgents", "RawEnv", "RawStep", "RawVectorEnv", "assert_seen"]

Seen = dict[int, Any]
"""Row → observation, of the agents that see anything now."""


class RawStep(NamedTuple):
    """What a step led to; each by row, of the agents that were there."""

    seen: Seen
    is_over: bool  # for all
    reward: dict[int, float]
    terminated: dict[int, bool]
    truncated: dict[int, bool]
    mask: dict[int, Any]  # what is allowed next, of agents that have a mask


class Raw(Protocol):
    """What an adapter must show, step by step."""

    def begin(self, episode: int) -> Seen:
        """The first observations of this episode, counted from 0; they come in order."""
        ...

    def step(self, action: NDArray[Any]) -> RawStep:
        """What these actions, a row for each agent, led to."""
        ...

    def close(self) -> None: ...


class RawEnv:
    """A `gymnasium.Env`; episodes begin with the seeds that `LoopVectorEnv` derives."""

    def __init__(self, env: Any, seed: int) -> None:
        self._env = env
        self._seed = seed
        self._to_env = spaces.one_to_env(env.action_space)

    def begin(self, episode: int) -> Seen:
        return {0: _unmasked(self._env.reset(seed=seeds.derived(self._seed, 0, episode))[0])}

    def step(self, action: NDArray[Any]) -> RawStep:
        obs, reward, terminated, truncated, info = self._env.step(self._to_env(action[0]))
        return RawStep(
            seen={0: _unmasked(obs)},
            is_over=bool(terminated or truncated),
            reward={0: reward},
            terminated={0: terminated},
            truncated={0: truncated},
            mask=_masks({0: obs}, {0: info}),
        )

    def close(self) -> None:
        self._env.close()


class RawVectorEnv:
    """A vector env of one env, which begins the next episode in the step after the last, whatever the action.

    `seed` is what its `reset` takes: a number, or a list of one.
    """

    def __init__(self, env: Any, seed: int | Sequence[int] | None) -> None:
        self._env = env
        self._seed = {} if seed is None else {"seed": seed}
        self._to_env = spaces.many_to_env(env.single_action_space, 1)
        self._last: NDArray[Any] = np.empty(0)

    def begin(self, episode: int) -> Seen:
        if episode == 0:
            return {0: self._env.reset(**self._seed)[0][0]}
        return {0: self._env.step(self._to_env(self._last))[0][0]}

    def step(self, action: NDArray[Any]) -> RawStep:
        self._last = action
        obs, reward, terminated, truncated, *_ = self._env.step(self._to_env(action))
        return RawStep(
            seen={0: obs[0]},
            is_over=bool(terminated[0] or truncated[0]),
            reward={0: reward[0]},
            terminated={0: terminated[0]},
            truncated={0: truncated[0]},
            mask={},
        )

    def close(self) -> None:
        self._env.close()


class RawAgents:
    """A PettingZoo env of either kind; episodes begin with the seeds that `LoopVectorEnv` derives."""

    def __init__(self, env: Any, seed: int) -> None:
        self._env = env
        self._seed = seed
        self._takes_turns = hasattr(env, "agent_iter")
        self._row = {agent: row for row, agent in enumerate(env.possible_agents)}
        self._to_env = {agent: spaces.one_to_env(env.action_space(agent)) for agent in env.possible_agents}

    def begin(self, episode: int) -> Seen:
        first = self._env.reset(seed=seeds.derived(self._seed, 0, episode))
        return self._observed() if self._takes_turns else self._rows(first[0])

    def step(self, action: NDArray[Any]) -> RawStep:
        env = self._env
        acts = {agent: self._to_env[agent](action[self._row[agent]]) for agent in env.agents}
        if self._takes_turns:
            return self._move(acts[env.agent_selection])
        obs, reward, terminated, truncated, infos = env.step(acts)
        here = {agent: self._row[agent] for agent in acts}
        return RawStep(
            seen=self._rows(obs),
            is_over=all(terminated[agent] or truncated[agent] for agent in terminated),
            reward={row: reward[agent] for agent, row in here.items()},
            terminated={row: terminated[agent] for agent, row in here.items()},
            truncated={row: truncated[agent] for agent, row in here.items()},
            mask=self._allowed(obs, infos),
        )

    def _move(self, act: Any) -> RawStep:
        """Of the agent whose turn it is."""
        env = self._env
        here = {agent: self._row[agent] for agent in env.agents if not self._has_left(agent)}
        env.step(act)
        is_over = all(self._has_left(agent) for agent in env.agents)
        step = RawStep(
            seen=self._observed(),
            is_over=is_over,
            reward={row: env.rewards[agent] for agent, row in here.items()},
            terminated={row: env.terminations[agent] for agent, row in here.items()},
            truncated={row: env.truncations[agent] for agent, row in here.items()},
            mask=self._allowed({agent: env.observe(agent) for agent in env.agents}, env.infos),
        )
        if is_over:
            return step
        while self._has_left(env.agent_selection):
            env.step(None)
        now = {env.agent_selection: env.observe(env.agent_selection)}
        return step._replace(seen=step.seen | self._observed(), mask=step.mask | self._allowed(now, env.infos))

    def close(self) -> None:
        self._env.close()

    def _has_left(self, agent: str) -> bool:
        return bool(self._env.terminations[agent] or self._env.truncations[agent])

    def _observed(self) -> Seen:
        return self._rows({agent: self._env.observe(agent) for agent in self._env.agents})

    def _rows(self, obs: dict[str, Any]) -> Seen:
        return {self._row[agent]: _unmasked(each) for agent, each in obs.items()}

    def _allowed(self, obs: dict[str, Any], infos: dict[str, Any]) -> dict[int, Any]:
        here = {self._row[agent]: agent for agent in obs}
        return _masks(
            {row: obs[agent] for row, agent in here.items()},
            {row: infos.get(agent) or {} for row, agent in here.items()},
        )


def _unmasked(obs: Any) -> Any:
    """Without the mask that some observations come with."""
    return obs["observation"] if _has_mask(obs) else obs


def _has_mask(obs: Any) -> bool:
    return isinstance(obs, dict) and set(obs) == {"observation", "action_mask"}


def _masks(obs: dict[int, Any], infos: dict[int, Any]) -> dict[int, Any]:
    """By row, from observations or infos; without those that allow nothing: nobody can act by them."""
    masks = {
        row: each["action_mask"] if _has_mask(each) else infos[row].get("action_mask") for row, each in obs.items()
    }
    return {row: np.asarray(mask, np.bool_) for row, mask in masks.items() if mask is not None and np.any(mask)}


def assert_seen(rows: Any, row: int, raw: Any, path: str = "obs") -> None:
    """Fail unless row `row` of a nest of arrays is a raw observation, cast to its dtype and padded with zeros."""
    if isinstance(rows, dict):
        for key, child in rows.items():
            assert_seen(child, row, raw[key], f"{path}/{key}")
    elif isinstance(rows, tuple):
        for number, child in enumerate(rows):
            assert_seen(child, row, raw[number], f"{path}/{number}")
    else:
        got, expected = rows[row].reshape(-1), np.asarray(raw).astype(rows.dtype).reshape(-1)
        np.testing.assert_array_equal(got[: expected.size], expected, err_msg=f"{path} of row {row}")
        assert not got[expected.size :].any(), f"{path} of row {row} is not padded with zeros"
