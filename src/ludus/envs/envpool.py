"""EnvPool: native worlds on native threads, `envpool:Pong-v5`.

Its settings are the keyword arguments, with its defaults. For Atari: 84 x 84 in grey, the last 4 frames, every action
for 4 frames, up to 30 idle frames at the start, no sticky actions, rewards as the game gives them
(`reward_clip=False`), and an episode is a whole game (`episodic_life=False`).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import Worlds, WorldSpec
from ludus.data.nest import Nest
from ludus.discovery.names import nearest
from ludus.envs import seeds, spaces
from ludus.envs.native import NativeWorlds, Outcome
from ludus.errors import EnvError, MissingExtra

try:
    import envpool
except ImportError as error:
    raise MissingExtra("envpool", extra="envpool") from error

__all__ = ["Pool", "make"]


def make(name: str, num_worlds: int, *, num_threads: int, kwargs: dict[str, Any]) -> Worlds:
    task = name.partition(":")[2]
    known = envpool.list_all_envs()
    if task not in known:
        raise EnvError(f"EnvPool knows no environment {task!r}. {nearest(task, known)}")
    for fixed in ("num_envs", "batch_size", "seed", "env_seed"):
        if fixed in kwargs:
            raise EnvError(f"{name}: {fixed} is not for choosing here; see `num_worlds` and `reset(seed)`")
    settings = {**kwargs, "num_envs": num_worlds, "num_threads": min(num_threads, num_worlds)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it lowers the precision of its own bounds
            told = envpool.make_spec(task, **settings)
            seen, done = told.gymnasium_observation_space, told.gymnasium_action_space
    except Exception as error:
        raise EnvError(f"{name} cannot be made with {kwargs}: {type(error).__name__}: {error}") from error
    if told.config.max_num_players > 1:
        raise EnvError(f"{name} has several players in a world, which this adapter does not know how to tell apart")
    spec = WorldSpec(name=name, obs=spaces.obs_spec(seen), action=spaces.action_spec(done))
    return NativeWorlds(spec, num_worlds, lambda: Pool(task, settings, done))


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
        raise EnvError("EnvPool's worlds cannot be restored: the library does not tell where they are")

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _ordered(self, obs: Nest, info: dict[str, Any], *others: NDArray[Any]) -> tuple[Any, ...]:
        """By the number of the world."""
        if np.array_equal(info["env_id"], self._ids):
            return obs, *others
        if not isinstance(obs, np.ndarray):
            raise EnvError(f"{self._task} gave its worlds out of order, in a nest")
        order = np.argsort(info["env_id"])
        return tuple([each[order] for each in (obs, *others)])
