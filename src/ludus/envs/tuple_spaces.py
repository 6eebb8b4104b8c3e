"""Level-based foraging and robotic warehouses: `lbforaging:Foraging-8x8-2p-2f-coop-v3`, `rware:rware-tiny-2ag-v2`.

Both are Gymnasium environments of several agents that act together: spaces, observations, actions and rewards are
tuples with a part for each agent. They do not tell an end by the rules from a time limit; here that is `truncated`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import VectorEnv
from ludus.discovery.names import nearest
from ludus.envs.failures import RAISED, expect_own
from ludus.envs.loop import LoopVectorEnv
from ludus.envs.parallel import ParallelAgentsEnv
from ludus.envs.single_env import SingleEnv
from ludus.errors import EnvError, MissingExtra

__all__ = ["make"]


@dataclass(frozen=True, kw_only=True)
class _Library:
    """`is_cut_off`: whether an episode that is over ended by a limit of steps. `forget` is called before a reset."""

    is_cut_off: Callable[[Any], bool]
    forget: Callable[[Any], None]


def _forget_places(env: Any) -> None:
    """Of the last episode's players: the library would let nobody begin where one of them ended."""
    for player in env.players:
        player.position = None


_LIBRARIES = {
    "lbforaging": _Library(is_cut_off=lambda env: bool(env.field.any()), forget=_forget_places),  # food is left
    "rware": _Library(is_cut_off=lambda env: True, forget=lambda env: None),  # it has no goal to reach
}


def make(name: str, num_envs: int, *, num_threads: int, kwargs: dict[str, Any]) -> VectorEnv:
    """`kwargs` are those of the library's class, such as `max_episode_steps` (lbforaging) or `max_steps` (rware)."""
    del num_threads  # one after the other
    library, _, env_id = name.partition(":")
    maker = _maker(library, env_id)

    def open_single_env() -> SingleEnv:
        try:
            return ParallelAgentsEnv(name, TupleSpacesEnv(maker(**kwargs), _LIBRARIES[library]))
        except (EnvError, MissingExtra):
            raise
        except RAISED as error:
            expect_own(error)
            raise EnvError(f"{name} cannot be made with {kwargs}: {type(error).__name__}: {error}") from error

    return LoopVectorEnv(open_single_env, num_envs)


class TupleSpacesEnv:
    """One such environment with the methods of a PettingZoo `ParallelEnv` that `ParallelAgentsEnv` calls.

    The state is the observations of all agents, one after the other.
    """

    def __init__(self, env: Any, library: _Library) -> None:
        self._env = env
        self._library = library
        self._obs: tuple[Any, ...] = ()
        self.possible_agents = [f"agent_{number}" for number in range(len(env.action_space))]
        self.agents = list(self.possible_agents)

    def observation_space(self, agent: str) -> Any:
        return self._env.observation_space[self.possible_agents.index(agent)]

    def action_space(self, agent: str) -> Any:
        return self._env.action_space[self.possible_agents.index(agent)]

    def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        self._library.forget(self._env)
        self._obs, _ = self._env.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return self._by_agent(self._obs), {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self._obs, rewards, is_over, is_truncated, _ = self._env.step([actions[agent] for agent in self.agents])
        is_truncated = is_truncated or (is_over and self._library.is_cut_off(self._env))
        ends = dict.fromkeys(self.agents, is_over and not is_truncated), dict.fromkeys(self.agents, is_truncated)
        if is_over or is_truncated:
            self.agents = []
        return self._by_agent(self._obs), self._by_agent(rewards), *ends, {}

    def state(self) -> NDArray[Any]:
        return np.concatenate([np.ravel(obs) for obs in self._obs])

    def close(self) -> None:
        self._env.close()

    def _by_agent(self, values: Any) -> dict[str, Any]:
        return dict(zip(self.possible_agents, values, strict=True))


def _maker(library: str, env_id: str) -> Callable[..., Any]:
    """What makes envs of that id. Raises `EnvError` with the nearest ids if there is none."""
    try:
        importlib.import_module(library)
        from gymnasium.envs.registration import load_env_creator, registry
    except ImportError as error:
        raise MissingExtra(library, extra="marl") from error
    known = {key: entry for key, entry in registry.items() if str(entry.entry_point).startswith(f"{library}.")}
    if env_id not in known:
        raise EnvError(f"{library} has no env {env_id!r}. {nearest(env_id, known)}")
    entry = known[env_id]
    return partial(load_env_creator(entry.entry_point), **entry.kwargs)
