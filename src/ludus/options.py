"""Options: fields of frozen configuration dataclasses that know their own help, and can be set by name.

@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    gamma: float = option(0.99, help="discount of a reward one step later")

config = options.replace(PPOConfig(), {"gamma": 0.999})        # a typo is answered with the nearest name
"""

from __future__ import annotations

import dataclasses
import math
import os
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ludus import spelling
from ludus.errors import ConfigError

__all__ = ["Option", "check", "describe", "option", "parse", "replace"]

C = TypeVar("C")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One field of a configuration, as a command line or a page shows it."""

    name: str
    type: Any
    default: Any
    help: str
    choices: tuple[str, ...] = ()


def option(
    default: Any,
    *,
    help: str,
    choices: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """A dataclass field with its help and what values it takes."""
    metadata = {"help": help, "choices": tuple(choices), "minimum": minimum, "maximum": maximum}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def describe(config: Any) -> list[Option]:
    """The options of a configuration class or object, in the order they were written."""
    hints = typing.get_type_hints(config if isinstance(config, type) else type(config))
    return [
        Option(
            name=field.name,
            type=hints[field.name],
            default=field.default if isinstance(config, type) else getattr(config, field.name),
            help=field.metadata.get("help", ""),
            choices=field.metadata.get("choices", ()),
        )
        for field in dataclasses.fields(config)
    ]


def replace(config: C, changes: Mapping[str, Any]) -> C:
    """The configuration with these fields changed; texts are parsed. Raises `ConfigError` naming what is wrong."""
    known = {field.name: field for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(type(config))
    parsed = {}
    for name, value in changes.items():
        if name not in known:
            near = spelling.suggest(name, known, num=3)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(sorted(known))}."
            hint = spelling.absence(name, known) or hint
            raise ConfigError(f"{type(config).__name__} has no setting {name!r}. {hint}")
        parsed[name] = _checked(name, parse(name, hints[name], value), known[name].metadata)
    return dataclasses.replace(config, **parsed)  # type: ignore[type-var]


def check(config: Any) -> None:
    """Raise `ConfigError` unless each field has a value of its type that its option takes. For `__post_init__`."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        _checked(field.name, parse(field.name, hints[field.name], value), field.metadata)


def parse(name: str, kind: Any, value: Any) -> Any:
    """`value` as `kind`: bool, int, float, str, `X | None`, or a tuple of one of them (as text: `64,64`).

    A path is a text, and one of those that a tuple has.
    """
    try:
        return _parse(kind, value)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ConfigError(f"{name}={value!r} is not {_spell(kind)}.") from None


def _parse(kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        inner = [part for part in typing.get_args(kind) if part is not type(None)]
        if value is None or (isinstance(value, str) and value.lower() in ("none", "")):
            return None
        return _parse(inner[0], value)
    if origin is tuple:
        is_one = isinstance(value, str | os.PathLike)
        parts = os.fspath(value).split(",") if is_one else list(value)
        return tuple(_parse(typing.get_args(kind)[0], part) for part in parts if part != "")
    if kind is bool:
        if isinstance(value, bool):
            return value
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[_text(value).lower()]
    if kind is int:
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
            raise ValueError
        return (
            int(float(value)) if isinstance(value, str) and "e" in value.lower() else int(str(value).replace("_", ""))
        )
    if kind is float:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    if kind is str:
        return _text(value)
    return value


def _text(value: Any) -> str:
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _checked(name: str, value: Any, metadata: Mapping[str, Any]) -> Any:
    choices, low, high = metadata.get("choices"), metadata.get("minimum"), metadata.get("maximum")
    if choices and value is not None and value not in choices:
        near = spelling.suggest(str(value), choices)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(choices)}.{hint}")
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int | float) and not isinstance(number, bool):
            if isinstance(number, float) and math.isnan(number):
                raise ConfigError(f"{name}={number} is not a number.")
            if low is not None and number < low:
                raise ConfigError(f"{name}={number} is less than {low}, the least it can be.")
            if high is not None and number > high:
                raise ConfigError(f"{name}={number} is more than {high}, the most it can be.")
    return value


def _spell(kind: Any) -> str:
    names = {bool: "yes or no", int: "a whole number", float: "a number", str: "text"}
    origin = typing.get_origin(kind)
    if origin is tuple:
        return f"a list such as 64,64, each {_spell(typing.get_args(kind)[0])}"
    if origin in (types.UnionType, typing.Union):
        return _spell(next(part for part in typing.get_args(kind) if part is not type(None))) + " or none"
    return names.get(kind, str(kind))
