"""PettingZoo and MPE2: envs of several agents, `pettingzoo:connect_four_v3`, `mpe2:simple_spread_v3`.

A module that has a `parallel_env` is played with all agents at once, others by turns.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pkgutil
import re
import warnings
from typing import Any

from ludus.core import VectorEnv
from ludus.discovery.names import nearest
from ludus.envs.failures import RAISED, expect_own
from ludus.envs.loop import LoopVectorEnv
from ludus.envs.parallel import ParallelAgentsEnv
from ludus.envs.single_env import SingleEnv
from ludus.envs.turns import TurnEnv
from ludus.errors import EnvError, MissingExtra

__all__ = ["make", "single_env_of"]

_FAMILIES = {"pettingzoo": ("atari", "butterfly", "classic", "magent", "mpe", "sisl"), "mpe2": ("",)}
_VERSIONED = re.compile(r"\w+_v\d+")


def make(name: str, num_envs: int, *, num_threads: int, kwargs: dict[str, Any]) -> VectorEnv:
    del num_threads  # one after the other
    library, _, env_name = name.partition(":")
    module = _module(name, library, env_name)
    maker = module.parallel_env if hasattr(module, "parallel_env") else module.env

    def open_single_env() -> SingleEnv:
        try:
            return single_env_of(name, maker(**kwargs))
        except (EnvError, MissingExtra):
            raise
        except RAISED as error:
            expect_own(error)
            raise EnvError(f"{name} cannot be made with {kwargs}: {type(error).__name__}: {error}") from error

    return LoopVectorEnv(open_single_env, num_envs)


def single_env_of(name: str, env: Any) -> SingleEnv:
    """An environment of either kind as a `SingleEnv`. It is reset, to see what its agents observe."""
    return TurnEnv(name, env) if hasattr(env, "agent_iter") else ParallelAgentsEnv(name, env)


def _module(name: str, library: str, env_name: str) -> Any:
    known = _known(library)
    if env_name not in known:
        raise EnvError(f"{library} has no env {env_name!r}. {nearest(env_name, known)}")
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # pygame greets
            warnings.simplefilter("ignore")
            return importlib.import_module(known[env_name])
    except ImportError as error:
        raise EnvError(f"{name} needs a library that is not installed: {error}") from error


def _known(library: str) -> dict[str, str]:
    """The envs of the library → the modules they are in. Nothing but the library itself is imported."""
    try:
        package = importlib.import_module(library)
    except ImportError as error:
        raise MissingExtra(library, extra="pettingzoo") from error
    found = {}
    for family in _FAMILIES[library]:
        folder = f"{package.__path__[0]}/{family}"
        prefix = f"{library}.{family}." if family else f"{library}."
        for module in pkgutil.iter_modules([folder]):
            if _VERSIONED.fullmatch(module.name):
                found[module.name] = prefix + module.name
    return found
