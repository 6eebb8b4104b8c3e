"""Episodes to look at: an env that can be drawn, and a policy that plays in it.

with VisibleEnv("LunarLander-v3") as env:
    for moment in play_episode(env, policy, seed=1):
        moment.frame, moment.returns, moment.is_over
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ludus import envs
from ludus.envs import registry
from ludus.errors import EnvError
from ludus.experiment.evaluation import PolicyPlayer
from ludus.experiment.saved_config import load_config
from ludus.learn.policies.policy import Policy

__all__ = ["Frame", "Moment", "VisibleEnv", "play_episode", "untrained_policy"]

Frame = NDArray[np.uint8]  # [height, width, 3]

_USUAL_FPS = 30.0
_MOST_STEPS = 100_000
_ARCADE_FPS, _ARCADE_SKIP = 60.0, 4  # the console's; and for how many frames ALE plays an action by default


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What is seen after so many steps of an episode, and one return so far for each agent."""

    frame: Frame
    step: int
    returns: tuple[float, ...]
    is_over: bool


class VisibleEnv:
    """One env, made so that it can be drawn. `fps` is how many of its steps make a second.

    Raises `EnvError` if it has no picture.
    """

    def __init__(self, name: str, **env_args: Any) -> None:
        # Drawing must neither open a window nor need a screen.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        self.name = name
        self.vector_env: Any = _make_visible(name, env_args)
        env = _env_inside(self.vector_env)
        metadata = getattr(env, "metadata", None) or {}
        if getattr(env, "render_mode", None) != "rgb_array" or "rgb_array" not in metadata.get("render_modes", ()):
            self.vector_env.close()
            raise _no_picture(name, f"its render modes are {list(metadata.get('render_modes', ())) or 'none'}")
        self.fps = float(metadata.get("render_fps") or _USUAL_FPS)
        if registry.adapter_of(name) == "ale":
            self.fps = _ARCADE_FPS / env_args.get("frameskip", _ARCADE_SKIP)

    def frame(self) -> Frame:
        """How it looks now."""
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # pygame greets
            warnings.simplefilter("ignore")
            try:
                drawn: Any = _env_inside(self.vector_env).render()
            except Exception as error:
                raise _no_picture(self.name, f"{type(error).__name__}: {error}") from error
        frame = np.asarray(drawn)
        if frame.ndim != 3 or frame.shape[2] != 3:
            raise _no_picture(self.name, f"it draws a {type(drawn).__name__} {list(frame.shape)}")
        return frame.astype(np.uint8, copy=False)

    def close(self) -> None:
        self.vector_env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def play_episode(
    env: VisibleEnv, policy: Policy, *, seed: int, greedy: bool = True, max_steps: int = _MOST_STEPS
) -> Iterator[Moment]:
    """One episode, moment by moment, from its first observation to its last. It is drawn as it is asked for."""
    vector_env = env.vector_env
    choose = PolicyPlayer(policy, vector_env.num_rows, seed=seed, greedy=greedy)
    total = np.zeros(vector_env.num_rows)
    now = vector_env.reset(seed)
    yield Moment(frame=env.frame(), step=0, returns=tuple(total.tolist()), is_over=False)
    for step in range(1, max_steps + 1):
        now = vector_env.step(choose(now))
        if now.failed.any():
            raise EnvError(f"{env.name} raised in step {step} of the episode with seed {seed}; nothing more to see.")
        total += now.reward
        is_over = bool((now.terminated | now.truncated).any() and not now.active.any())
        yield Moment(frame=env.frame(), step=step, returns=tuple(total.tolist()), is_over=is_over)
        if is_over:
            return


def untrained_policy(folder: Path) -> Policy:
    """A trial's policy as it was before it had learnt anything."""
    from ludus.experiment.wiring import make_policy_spec

    config = load_config(folder)
    env = envs.spec(config.train.env, **config.env_args)
    return Policy(make_policy_spec(config, env), seed=config.train.seed)


def _make_visible(name: str, env_args: dict[str, Any]) -> Any:
    adapter = registry.adapter_of(name)
    if adapter == "envpool":
        raise _no_picture(name, "EnvPool plays without one; train and watch the same game by ALE or Gymnasium")
    arguments = dict(env_args)
    if adapter in ("gymnasium", "ale"):
        arguments["vectorization"] = "loop"
    try:
        return envs.make(name, 1, **{"render_mode": "rgb_array", **arguments})
    except EnvError:
        if adapter != "function":
            raise
        return envs.make(name, 1, **arguments)  # a function that takes no render_mode may have set one itself


def _env_inside(vector_env: Any) -> Any:
    """The library's environment: the one thing that `core.VectorEnv`, which is for training, does not show."""
    inside = getattr(getattr(vector_env, "inside", vector_env), "_envs", [])
    return getattr(inside[0], "_env", None) if inside else None


def _no_picture(name: str, why: str) -> EnvError:
    return EnvError(
        f"{name} cannot be watched, because it has no picture: {why}. An env is drawn by render(), if it was made "
        'with render_mode="rgb_array". Without that, `ludus evaluate` tells how well a policy plays.'
    )
