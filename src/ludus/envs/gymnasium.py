"""Gymnasium: envs by their registered id, as a vector environment of the library's own or one by one in a loop.

make("CartPole-v1", 64)                              # CartPoleVectorEnv: all 64 in one NumPy step
make("LunarLander-v3", 8)                            # 8 environments in a LoopVectorEnv
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec, TimeStep, VectorEnv
from ludus.data.nest import Nest
from ludus.discovery.names import nearest
from ludus.envs import attributes, spaces
from ludus.envs import rows as arrays
from ludus.envs.failures import RAISED, expect_own
from ludus.envs.loop import LoopVectorEnv
from ludus.envs.native import NativeVectorEnv, Outcome
from ludus.envs.registry import PREFIXES
from ludus.envs.validation import check_sizes
from ludus.errors import EnvError, MissingExtra

try:
    import gymnasium
    from gymnasium.vector import AutoresetMode
except ImportError as error:
    raise MissingExtra("gymnasium", extra="train") from error

__all__ = ["GymnasiumEnv", "VectorGroup", "check_vectorization", "looked_up", "made", "make"]

_FIXED = (gymnasium.Space, gymnasium.envs.registration.EnvSpec)  # attributes that follow from how it was made


def make(name: str, num_envs: int, *, num_threads: int, kwargs: dict[str, Any]) -> VectorEnv:
    """`vectorization` is `"vector"` (the library's own), `"loop"`, or `"auto"`: the first of them that there is."""
    del num_threads  # neither form has any
    kwargs = dict(kwargs)
    vectorization = check_vectorization(kwargs)
    entry = looked_up(name)
    if vectorization != "loop" and _has_numpy_vector(entry):
        open_env = partial(made, name, gymnasium.make_vec, name, num_envs, "vector_entry_point", **kwargs)
        first = open_env()
        if first.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
            spec = EnvSpec(
                name=name,
                obs=spaces.obs_spec(first.single_observation_space),
                action=spaces.action_spec(first.single_action_space),
            )
            ready = [first]
            return NativeVectorEnv(spec, num_envs, lambda: VectorGroup(ready.pop() if ready else open_env()))
        first.close()
    if vectorization == "vector":
        raise EnvError(f"{name} has no vector environment of its own that begins episodes as ours do; use the loop")
    return LoopVectorEnv(lambda: GymnasiumEnv(name, partial(_make_one, name, kwargs)), num_envs)


def check_vectorization(kwargs: dict[str, Any]) -> str:
    """Take the setting out of `kwargs`."""
    choice: str = kwargs.pop("vectorization", "auto")
    if choice not in ("auto", "vector", "loop"):
        raise EnvError(f'vectorization={choice!r} is not known: it is "auto", "vector" or "loop"')
    return choice


def looked_up(name: str) -> Any:
    """The library's entry of that id. Raises `EnvError` with the nearest ids if there is none."""
    module, colon, env_id = name.rpartition(":")
    if colon:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise EnvError(
                f"{name!r}: there is no module {module!r} to register it ({error}), and as the name of a library it is "
                f"not known. {nearest(module, PREFIXES)}"
            ) from error
    if env_id not in gymnasium.registry:
        raise EnvError(f"Gymnasium knows no environment {env_id!r}. {nearest(env_id, gymnasium.registry)}")
    return gymnasium.registry[env_id]


def made(name: str, maker: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the maker gives; what it raises becomes an `EnvError`, or a `MissingExtra` if a library is not there."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="gymnasium.*")
            return maker(*args, **kwargs)
    except (EnvError, MissingExtra):
        raise
    except RAISED as error:
        expect_own(error)
        if "box2d" in str(error).lower():
            raise MissingExtra("box2d", extra="box2d") from error
        raise EnvError(f"{name} cannot be made: {type(error).__name__}: {error}") from error


def _make_one(name: str, kwargs: dict[str, Any]) -> Any:
    return made(name, gymnasium.make, name, disable_env_checker=True, **kwargs)


def _has_numpy_vector(entry: Any) -> bool:
    point = entry.vector_entry_point
    if point is None or (isinstance(point, str) and "Jax" in point):
        return False
    try:
        if isinstance(point, str):
            importlib.import_module(point.partition(":")[0])
    except ImportError:
        return False
    return True


class GymnasiumEnv:
    """One `gymnasium.Env` as a `SingleEnv` of one agent. Its mask, if any, is taken from the observation or the info.

    An observation of `{"observation": ..., "action_mask": ...}` is seen as the former, with the latter as its mask.
    """

    def __init__(self, name: str, open_env: Callable[[], Any]) -> None:
        self._env = env = open_env()
        seen = env.observation_space
        self._splits = isinstance(seen, gymnasium.spaces.Dict) and set(seen) == {"observation", "action_mask"}
        action = spaces.action_spec(env.action_space)
        first = made(name, env.reset)  # without a seed: given one, Atari loads its cartridge again
        if not isinstance(first, tuple) or len(first) != 2 or not isinstance(first[1], dict):
            raise EnvError(
                f"{name} gave a {type(first).__name__} when it was reset; it must be (observation, info). "
                "An environment with the interface of the old Gym can be wrapped, by Shimmy for example"
            )
        mask = first[1].get("action_mask")
        has_mask = self._splits or (mask is not None and np.shape(mask) == (action.mask_size,))
        self.spec = EnvSpec(
            name=name,
            obs=spaces.obs_spec(seen["observation"] if self._splits else seen),
            action=action,
            has_mask=has_mask,
        )
        self._to_env = spaces.one_to_env(env.action_space)
        self._is_new = True  # until its first step

    def reset(self, seed: int, rows: TimeStep) -> None:
        obs, info = self._env.reset(seed=seed)
        if self._is_new:
            self._check_sizes(obs, rows)
        self._see(obs, info, rows)
        rows.active[0] = True

    def step(self, action: NDArray[Any], rows: TimeStep) -> bool:
        obs, reward, terminated, truncated, info = self._env.step(self._to_env(action[0]))
        if self._is_new:
            self._check_sizes(obs, rows)
            self._is_new = False
        self._see(obs, info, rows)
        rows.reward[0] = reward
        rows.terminated[0] = terminated
        rows.truncated[0] = truncated
        return bool(terminated or truncated)

    def close(self) -> None:
        self._env.close()

    def _check_sizes(self, obs: Any, rows: TimeStep) -> None:
        check_sizes(rows.obs, obs["observation"] if self._splits else obs)

    def _see(self, obs: Any, info: dict[str, Any], rows: TimeStep) -> None:
        if rows.mask is not None:
            mask = obs["action_mask"] if self._splits else info.get("action_mask")
            rows.mask[0] = True if mask is None or not np.any(mask) else mask
        arrays.write(rows.obs, 0, obs["observation"] if self._splits else obs)


class VectorGroup:
    """A `gymnasium.vector.VectorEnv` as a `Group`; it is saved by its attributes."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._to_env = spaces.many_to_env(env.single_action_space, env.num_envs)
        self._outcome: Any = None

    def reset(self, seed: int) -> Nest:
        return self._env.reset(seed=seed)[0]

    def send(self, action: NDArray[Any]) -> None:
        self._outcome = self._env.step(self._to_env(action))

    def recv(self) -> Outcome:
        obs, reward, terminated, truncated, _ = self._outcome
        return obs, reward, terminated, truncated

    def save(self) -> Nest:
        return attributes.saved(self._env, fixed=_FIXED) if self._env.unwrapped is self._env else None

    def restore(self, saved: Nest) -> None:
        attributes.restore(self._env, saved)

    def close(self) -> None:
        self._env.close()
