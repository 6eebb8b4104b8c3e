"""An object saved as its attributes: arrays, numbers, text, random generators, and containers of these.

    saved = attributes.saved(env, fixed=(Space,))        # a nest for the codec, or None if something has no such form
    attributes.restore(other, saved)                     # `other` was made with the same arguments

For environments that are arrays and numbers all through, as Gymnasium's `CartPoleVectorEnv` is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ludus.data.nest import Nest
from ludus.errors import EnvError

__all__ = ["restore", "saved"]

_INT64 = range(-(1 << 63), 1 << 63)


class _Unsavable(Exception):
    """A value has no form that the codec takes."""


def saved(target: Any, *, fixed: tuple[type, ...] = ()) -> Nest:
    """A copy of all attributes but those of the `fixed` types; `None` if one cannot be saved."""
    try:
        return {name: _pack(value) for name, value in vars(target).items() if not isinstance(value, fixed)}
    except _Unsavable:
        return None


def restore(target: Any, saved: Nest) -> None:
    """Raises `EnvError` unless these are attributes of such an object."""
    if not isinstance(saved, dict):
        raise EnvError(f"a {type(saved).__name__} was saved, not the attributes of a {type(target).__name__}")
    for name, value in saved.items():
        setattr(target, name, _unpack(value))


def _pack(value: Any) -> Nest:
    """Tagged by kind: `{"array": ...}`; plain values as they are."""
    match value:
        case None | bool() | float() | str():
            return value
        case int():
            return value if value in _INT64 else {"int": str(value)}  # the codec takes 64 bits
        case np.generic():
            return value
        case np.ndarray() if value.dtype.kind in "biufc":
            return {"array": value.copy()}
        case np.random.Generator():
            return {"generator": _pack(value.bit_generator.state)}
        case dict() if all(isinstance(key, str) for key in value):
            return {"dict": {key: _pack(child) for key, child in value.items()}}
        case list():
            return [_pack(child) for child in value]
        case tuple() if type(value) is tuple:
            return tuple([_pack(child) for child in value])
    raise _Unsavable


def _unpack(value: Nest) -> Any:
    if isinstance(value, list | tuple):
        return type(value)([_unpack(child) for child in value])
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    match kind:
        case "int":
            return int(content)
        case "array":
            return content.copy()
        case "dict":
            return {key: _unpack(child) for key, child in content.items()}
        case "generator":
            state = _unpack(content)
            generator = np.random.Generator(getattr(np.random, state["bit_generator"])())
            generator.bit_generator.state = state
            return generator
    raise EnvError(f"an attribute was saved as a {kind!r}, which is no kind of value")
