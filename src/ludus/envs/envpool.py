"""EnvPool: native envs on native threads, `envpool:Pong-v5`.

Its settings are the keyword arguments, with its defaults. For Atari: 84 x 84 in grey, the last 4 frames, every action
for 4 frames, up to 30 idle frames at the start, no sticky actions, rewards as the game gives them
(`reward_clip=False`), and an episode is a whole game (`episodic_life=False`).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec, VectorEnv
from ludus.data.nest import Nest
from ludus.discovery.names import nearest
from ludus.envs import seeds, spaces
from ludus.envs.native import NativeVectorEnv, Outcome
from ludus.errors import EnvError, MissingExtra

try:
    import envpool
except ImportError as error:
    raise MissingExtra("envpool", extra="envpool") from error

__all__ = ["Pool", "make"]


def make(name: str, num_envs: int, *, num_threads: int, kwargs: dict[str, Any]) -> VectorEnv:
    task = name.partition(":")[2]
    known = envpool.list_all_envs()
    if task not in known:
        raise EnvError(f"EnvPool knows no environment {task!r}. {nearest(task, known)}")
    for fixed in ("num_envs", "batch_size", "seed", "env_seed"):
        if fixed in kwargs:
            raise EnvError(f"{name}: {fixed} is not for choosing here; see `num_envs` and `reset(seed)`")
    settings = {**kwargs, "num_envs": num_envs, "num_threads": min(num_threads, num_envs)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it lowers the precision of its own bounds
            pool_spec = envpool.make_spec(task, **settings)
            seen, done = pool_spec.gymnasium_observation_space, pool_spec.gymnasium_action_space
    except Exception as error:
        raise EnvError(f"{name} cannot be made with {kwargs}: {type(error).__name__}: {error}") from error
    if pool_spec.config.max_num_players > 1:
        raise EnvError(f"{name} has several players in an env, which this adapter does not know how to tell apart")
    spec = EnvSpec(name=name, obs=spaces.obs_spec(seen), action=spaces.action_spec(done))
    return NativeVectorEnv(spec, num_envs, lambda: Pool(task, settings, done))


class Pool:
    """An EnvPool as a `Group`. It takes its seeds when it is made, so every `reset` makes another."""

    def __init__(self, task: str, settings: dict[str, Any], action_space: Any) -> None:
        self._task = task
        self._settings = settings
        self._num = settings["num_envs"]
        self._to_env = spaces.many_to_env(action_space, self._num)
        self._action_dtype = action_space.dtype
        self._ids = np.arange(self._num, dtype=np.int32)
        self._pool: Any = None

    def reset(self, seed: int) -> Nest:
        self.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._pool = envpool.make_gymnasium(self._task, seed=seeds.spread(seed, self._num), **self._settings)
            obs, info = self._pool.reset()
        return self._ordered(obs, info)[0]

    def send(self, action: NDArray[Any]) -> None:
        self._pool.send(self._to_env(action).astype(self._action_dtype, copy=False), self._ids)

    def recv(self) -> Outcome:
        obs, reward, terminated, truncated, info = self._pool.recv()
        obs, reward, terminated, truncated = self._ordered(obs, info, reward, terminated, truncated)
        return obs, reward, terminated, truncated

    def save(self) -> Nest:
        return None

    def restore(self, saved: Nest) -> None:
        raise EnvError("EnvPool's envs cannot be restored: the library does not tell where they are")

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _ordered(self, obs: Nest, info: dict[str, Any], *others: NDArray[Any]) -> tuple[Any, ...]:
        """By the number of the env."""
        if np.array_equal(info["env_id"], self._ids):
            return obs, *others
        if not isinstance(obs, np.ndarray):
            raise EnvError(f"{self._task} gave its envs out of order, in a nest")
        order = np.argsort(info["env_id"])
        return tuple([each[order] for each in (obs, *others)])
