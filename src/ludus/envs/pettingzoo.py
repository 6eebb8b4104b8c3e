"""PettingZoo and MPE2: worlds of several agents, `pettingzoo:connect_four_v3`, `mpe2:simple_spread_v3`.

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

from ludus.core import Worlds
from ludus.discovery.names import nearest
from ludus.envs.failures import RAISED, expect_own
from ludus.envs.loop import LoopWorlds
from ludus.envs.parallel import ParallelWorld
from ludus.envs.turns import TurnWorld
from ludus.envs.world import World
from ludus.errors import EnvError, MissingExtra

__all__ = ["make", "world_of"]

_FAMILIES = {"pettingzoo": ("atari", "butterfly", "classic", "magent", "mpe", "sisl"), "mpe2": ("",)}
_VERSIONED = re.compile(r"\w+_v\d+")


def make(name: str, num_worlds: int, *, num_threads: int, kwargs: dict[str, Any]) -> Worlds:
    del num_threads  # one after the other
    library, _, world = name.partition(":")
    module = _module(name, library, world)
    maker = module.parallel_env if hasattr(module, "parallel_env") else module.env

    def open_world() -> World:
        try:
            return world_of(name, maker(**kwargs))
        except (EnvError, MissingExtra):
            raise
        except RAISED as error:
            expect_own(error)
            raise EnvError(f"{name} cannot be made with {kwargs}: {type(error).__name__}: {error}") from error

    return LoopWorlds(open_world, num_worlds)


def world_of(name: str, env: Any) -> World:
    """An environment of either kind as a `World`. It is reset, to see what its agents are told."""
    return TurnWorld(name, env) if hasattr(env, "agent_iter") else ParallelWorld(name, env)


def _module(name: str, library: str, world: str) -> Any:
    known = _known(library)
    if world not in known:
        raise EnvError(f"{library} has no world {world!r}. {nearest(world, known)}")
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # pygame greets
            warnings.simplefilter("ignore")
            return importlib.import_module(known[world])
    except ImportError as error:
        raise EnvError(f"{name} needs a library that is not installed: {error}") from error


def _known(library: str) -> dict[str, str]:
    """The worlds of the library → the modules they are in. Nothing but the library itself is imported."""
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
