"""Gymnasium's spaces ↔ our specs: what is seen becomes `ArraySpec`s, what is done an `ActionSpec` and its translation.

| space | seen | done |
|---|---|---|
| `Box` | array with bounds, float64 as float32 | `Continuous`: flat, clipped to the bounds |
| `Discrete` | int64 scalar | `Discrete`, counted from 0 |
| `MultiDiscrete` | int64 array | `MultiDiscrete`, flat, counted from 0 |
| `MultiBinary` | int8 array | `MultiDiscrete` of twos, flat |
| `Dict`, `Tuple` | nests | no |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.data.actions import ActionSpec, Continuous, Discrete, MultiDiscrete
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.errors import EnvError, MissingExtra, SpecError

try:
    from gymnasium import spaces
except ImportError as error:
    raise MissingExtra("gymnasium", extra="train") from error

__all__ = ["Translation", "action_spec", "many_to_env", "obs_spec", "one_to_env"]

Translation: TypeAlias = Callable[[NDArray[Any]], Any]
"""From an action, or a batch of them, in our form to the environment's."""


def obs_spec(space: Any) -> Nest:
    """A nest of `ArraySpec`s. Raises `EnvError` for a space whose values are not arrays of one shape."""
    match space:
        case spaces.Box():
            dtype = np.dtype(np.float32) if space.dtype == np.float64 else np.dtype(space.dtype)
            return ArraySpec(space.shape, dtype, space.low.astype(dtype), space.high.astype(dtype))
        case spaces.Discrete():
            return ArraySpec((), np.int64, int(space.start), int(space.start + space.n - 1))
        case spaces.MultiDiscrete():
            return ArraySpec(space.shape, np.int64, space.start, space.start + space.nvec - 1)
        case spaces.MultiBinary():
            return ArraySpec(space.shape, np.int8, 0, 1)
        case spaces.Dict():
            return {key: obs_spec(child) for key, child in space.items()}
        case spaces.Tuple():
            return tuple([obs_spec(child) for child in space])
        case _:
            raise EnvError(f"observations of the space {space} have no array form. Wrap the environment to give a Box")


def action_spec(space: Any) -> ActionSpec:
    """Raises `EnvError` for a space that is none of the four kinds."""
    try:
        match space:
            case spaces.Discrete():
                return Discrete(int(space.n))
            case spaces.MultiDiscrete():
                return MultiDiscrete(tuple(int(n) for n in space.nvec.flat))
            case spaces.MultiBinary():
                return MultiDiscrete((2,) * int(np.prod(space.shape)))
            case spaces.Box() if np.issubdtype(space.dtype, np.floating):
                low, high = (bound.astype(np.float32).ravel().tolist() for bound in (space.low, space.high))
                return Continuous(tuple(low), tuple(high))
    except SpecError as error:
        raise EnvError(f"actions of the space {space} cannot be offered: {error}") from None
    raise EnvError(f"actions of the space {space} are none of Discrete, MultiDiscrete, MultiBinary and a Box of floats")


def one_to_env(space: Any) -> Translation:
    """The translation of one action."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return lambda action: int(action) + start
    return _to_env(space, ())


def many_to_env(space: Any, num: int) -> Translation:
    """The translation of a batch of `num`."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (lambda action: action + start) if start else (lambda action: action)
    return _to_env(space, (num,))


def _to_env(space: Any, leading: tuple[int, ...]) -> Translation:
    shape, dtype = (*leading, *space.shape), space.dtype
    if isinstance(space, spaces.Box):
        low, high = space.low.ravel(), space.high.ravel()
        return lambda action: np.clip(action, low, high).astype(dtype, copy=False).reshape(shape)
    start = np.broadcast_to(getattr(space, "start", 0), space.shape)
    return lambda action: (action.reshape(shape) + start).astype(dtype, copy=False)
