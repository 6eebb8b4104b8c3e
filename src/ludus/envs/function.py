"""Envs that a function of the user's makes: `my_module:make_game`, or `games/mine.py:make_game`.

It returns one `gymnasium.Env`, one PettingZoo environment, the `core.Rules` of a board game, or, if it takes
`num_envs`, a whole group with the contract of `core.VectorEnv`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ludus.core import Rules, VectorEnv
from ludus.data import lookup
from ludus.discovery.names import nearest
from ludus.envs.boards.vector_env import BoardVectorEnv
from ludus.envs.failures import RAISED, expect_own
from ludus.envs.loop import LoopVectorEnv
from ludus.envs.registry import PREFIXES
from ludus.envs.single_env import SingleEnv
from ludus.errors import ConfigError, EnvError, MissingExtra

__all__ = ["make", "rules"]

_RANDOM_MOVES = "random_moves"  # a setting of envs over any rules; the function that makes the rules need not know it
_NEARLY_RULES = 5  # an object that lacks no more than so many of its members was meant to be `Rules`


def make(name: str, num_envs: int, *, num_threads: int, kwargs: dict[str, Any]) -> VectorEnv:
    """`num_threads` is given to a function that takes it, as `num_envs` is."""
    function = _function(name)
    arguments, for_boards = _arguments(function, {"num_envs": num_envs, "num_threads": num_threads}, kwargs)
    first = _called(name, function, arguments)
    if isinstance(first, Rules):
        return BoardVectorEnv(name, first, num_envs, **for_boards)
    if for_boards:  # it makes no rules, so these are for the function, which may not take them
        _close(first)
        first = _called(name, function, {**arguments, **for_boards})
    if _is_vector_env(first):
        if first.num_envs != num_envs:
            raise EnvError(
                f"{name} returned {first.num_envs} envs, {num_envs} were asked for. "
                "Let the function take `num_envs` and make as many"
            )
        vector_env: VectorEnv = first
        return vector_env
    ready = [first]

    def open_single_env() -> SingleEnv:
        env = ready.pop() if ready else _called(name, function, arguments)
        try:
            return _single_env(name, env)
        except (EnvError, MissingExtra):
            raise
        except RAISED as error:
            expect_own(error)
            raise EnvError(
                f"{name} gave a {type(env).__name__} that cannot be played: {type(error).__name__}: {error}"
            ) from error

    return LoopVectorEnv(open_single_env, num_envs)


def rules(name: str, kwargs: dict[str, Any]) -> Rules | None:
    """`None` if the function makes something else than rules. It is called to find out."""
    function = _function(name)
    arguments, _ = _arguments(function, {"num_envs": 1, "num_threads": 1}, kwargs)
    made = _called(name, function, arguments)
    if isinstance(made, Rules):
        return made
    _close(made)
    return None


def _close(made: Any) -> None:
    close = getattr(made, "close", None)
    if callable(close):
        close()


def _arguments(
    function: Callable[..., Any], offered: dict[str, Any], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What to call the function with, and what is left for `BoardVectorEnv` if it makes rules."""
    parameters = inspect.signature(function).parameters
    arguments = {**{key: value for key, value in offered.items() if key in parameters}, **kwargs}
    for_boards = {}
    if _RANDOM_MOVES in kwargs and _RANDOM_MOVES not in parameters:
        for_boards[_RANDOM_MOVES] = arguments.pop(_RANDOM_MOVES)
    return arguments, for_boards


def _single_env(name: str, env: Any) -> SingleEnv:
    """An object's library is recognised by its attributes; only that library is imported."""
    if hasattr(env, "possible_agents"):
        from ludus.envs import pettingzoo

        return pettingzoo.single_env_of(name, env)
    if all(hasattr(env, each) for each in ("observation_space", "action_space", "reset", "step")):
        from ludus.envs import gymnasium

        return gymnasium.GymnasiumEnv(name, lambda: env)
    of_rules = {*Rules.__annotations__, *(each for each in vars(Rules) if not each.startswith("_"))}
    missing = sorted(each for each in of_rules if not hasattr(env, each))
    lacks = "" if len(missing) > _NEARLY_RULES else f". To be the rules of a board game it lacks {', '.join(missing)}"
    raise EnvError(
        f"{name} returned a {type(env).__name__}: that is no gymnasium.Env, no PettingZoo environment, no VectorEnv "
        f"and no Rules{lacks}"
    )


def _is_vector_env(thing: Any) -> bool:
    return all(hasattr(thing, each) for each in ("num_envs", "num_rows", "send", "recv", "spec", "save", "restore"))


def _called(name: str, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except EnvError:
        raise
    except RAISED as error:
        expect_own(error)
        raise EnvError(f"{name} raised when called with {arguments}: {type(error).__name__}: {error}") from error


def _function(name: str) -> Callable[..., Any]:
    where = name.rpartition(":")[0]
    try:
        found = lookup.load_attribute(name, what="env")
    except ConfigError as error:
        near = "" if where.endswith(".py") else f" As the name of a library it is not known. {nearest(where, PREFIXES)}"
        raise EnvError(f"{error}{near if 'no module' in str(error) else ''}") from error
    if not callable(found):
        raise EnvError(f"{name!r} is a {type(found).__name__}, not a function that makes an env")
    function: Callable[..., Any] = found
    return function
