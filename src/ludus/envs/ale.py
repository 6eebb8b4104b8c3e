"""Atari games by the ids of the Arcade Learning Environment: `ALE/Pong-v5`.

ALE's own `AtariVectorEnv` plays them on native threads, and an action that was sent is played while the caller does
something else. Its settings are the keyword arguments, with its defaults: 84 x 84 in grey, the last 4 frames, every
action for 4 frames, up to 30 idle frames at the start (`noop_max`), fire pressed at the start where the game wants it
(`use_fire_reset`), no sticky actions (`repeat_action_probability=0`), rewards cut to [-1, 1] (`reward_clipping`), and
an episode is a whole game, not a life (`episodic_life=False`).

With `vectorization="loop"` the same settings, but for `use_fire_reset`, go to single environments, which can be saved.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec, VectorEnv
from ludus.data.nest import Nest
from ludus.envs import gymnasium as gym
from ludus.envs import seeds, spaces
from ludus.envs.loop import LoopVectorEnv
from ludus.envs.native import NativeVectorEnv, Outcome
from ludus.errors import EnvError, MissingExtra

try:
    import ale_py
    import gymnasium
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode
except ImportError as error:
    raise MissingExtra("ale-py", extra="atari") from error

__all__ = ["AtariGroup", "make"]


def make(name: str, num_envs: int, *, num_threads: int, kwargs: dict[str, Any]) -> VectorEnv:
    """`vectorization` is `"vector"` (also for `"auto"`) or `"loop"`; all else is a setting of `AtariVectorEnv`."""
    gymnasium.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    kwargs = dict(kwargs)
    vectorization = gym.check_vectorization(kwargs)
    entry = gym.looked_up(name)
    if vectorization == "loop":
        open_one = partial(gym.made, name, _preprocessed, name, **kwargs)
        return LoopVectorEnv(lambda: gym.GymnasiumEnv(name, open_one), num_envs)
    for fixed in ("autoreset_mode", "batch_size"):
        if fixed in kwargs:
            raise EnvError(
                f"{name}: {fixed} is not for choosing here; envs are stepped together, as `VectorEnv` has it"
            )
    open_env = partial(
        gym.made,
        name,
        AtariVectorEnv,
        entry.kwargs["game"],
        num_envs,
        num_threads=num_threads,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        **kwargs,
    )
    first = open_env()
    spec = EnvSpec(
        name=name,
        obs=spaces.obs_spec(first.single_observation_space),
        action=spaces.action_spec(first.single_action_space),
    )
    ready = [first]
    return NativeVectorEnv(spec, num_envs, lambda: AtariGroup(ready.pop() if ready else open_env()))


class AtariGroup:
    """An `AtariVectorEnv` as a `Group`. It tells nothing that it could be restored from."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._to_env = spaces.many_to_env(env.single_action_space, env.num_envs)
        self._in_order = np.arange(env.num_envs)

    def reset(self, seed: int) -> Nest:
        return self._env.reset(seed=np.asarray(seeds.spread(seed, self._env.num_envs)))[0]

    def send(self, action: NDArray[Any]) -> None:
        self._env.send(self._to_env(action))

    def recv(self) -> Outcome:
        obs, reward, terminated, truncated, info = self._env.recv()
        if not np.array_equal(info["env_id"], self._in_order):
            order = np.argsort(info["env_id"])
            return obs[order], reward[order], terminated[order], truncated[order]
        return obs, reward, terminated, truncated

    def save(self) -> Nest:
        return None

    def restore(self, saved: Nest) -> None:
        raise EnvError('ALE\'s vector environment cannot be restored; use vectorization="loop" for envs that can')

    def close(self) -> None:
        self._env.close()


def _preprocessed(
    name: str,
    *,
    img_height: int = 84,
    img_width: int = 84,
    grayscale: bool = True,
    stack_num: int = 4,
    frameskip: int = 4,
    noop_max: int = 30,
    episodic_life: bool = False,
    reward_clipping: bool = True,
    repeat_action_probability: float = 0.0,
    **kwargs: Any,
) -> Any:
    """One environment with the preprocessing that the vector environment has built in."""
    env = gymnasium.make(
        name,
        disable_env_checker=True,
        frameskip=1,
        repeat_action_probability=repeat_action_probability,
        **kwargs,
    )
    env = gymnasium.wrappers.AtariPreprocessing(
        env,
        noop_max=noop_max,
        frame_skip=frameskip,
        screen_size=(img_width, img_height),
        terminal_on_life_loss=episodic_life,
        grayscale_obs=grayscale,
    )
    if reward_clipping:
        env = gymnasium.wrappers.ClipReward(env, -1.0, 1.0)
    return gymnasium.wrappers.FrameStackObservation(env, stack_num)
