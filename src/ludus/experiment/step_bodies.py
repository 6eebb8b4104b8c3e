"""What a step of a game says: bodies as `policy_session.py` describes them, read by a policy's specs."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.errors import InvalidObservation

__all__ = ["decode_body", "expect_finite", "mask_of", "observation", "reward_of"]

_from_json = msgspec.json.Decoder().decode
_from_msgpack = msgspec.msgpack.Decoder().decode
_JSON_BEGINS = frozenset(b'{["tfn-0123456789 \t\r\n')


def decode_body(data: bytes) -> tuple[dict[str, Any], bool]:
    """What a body says, and whether it is JSON; a bare observation becomes {"obs": …}. Raises `InvalidObservation`."""
    is_json = bool(data) and data[0] in _JSON_BEGINS
    try:
        body = _from_json(data) if is_json else _from_msgpack(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidObservation(f"the body is neither JSON nor msgpack: {error}") from None
    return (body if isinstance(body, dict) else {"obs": body}), is_json


def reward_of(body: dict[str, Any]) -> float:
    """What the last action brought; 0 if the body does not say. Raises `InvalidObservation`."""
    try:
        reward = float(body.get("reward", 0.0))
    except (TypeError, ValueError, OverflowError):
        raise InvalidObservation(f"a reward is a number; this one is {str(body['reward'])[:80]!r}") from None
    if not math.isfinite(reward):
        raise InvalidObservation(f"a reward is a finite number; this one is {reward}")
    return reward


def mask_of(body: dict[str, Any], size: int) -> NDArray[np.bool_] | None:
    """Which of `size` choices are allowed, if the body says so. Raises `InvalidObservation`."""
    if body.get("mask") is None:
        return None
    try:
        mask = np.asarray(body["mask"], np.bool_)
        is_mask = mask.shape == (size,) and mask.any()
    except ValueError:  # lists of several lengths
        is_mask = False
    if not is_mask:
        raise InvalidObservation(
            f"a mask has {size} booleans, of which one is true at least; this one is {body['mask']!r}"
        )
    return mask


def expect_finite(obs: Nest) -> None:
    """Raise `InvalidObservation`, which names the leaf, if a number is not finite."""
    if all(map(_is_finite, nests.leaves(obs))):
        return
    wrong = next(path for path, leaf in zip(nests.paths(obs), nests.leaves(obs), strict=True) if not _is_finite(leaf))
    where = f"obs/{wrong}" if wrong else "obs"
    raise InvalidObservation(f"{where} has a number that is not finite: nothing can be learnt from it")


def _is_finite(leaf: Any) -> bool:
    return leaf.dtype.kind != "f" or bool(np.isfinite(leaf).all())


def observation(value: Any, spec: Nest, path: str) -> Nest:
    """Plain lists and bytes as the arrays that the policy takes. Raises `InvalidObservation`, which names the leaf."""
    if isinstance(spec, dict):
        if not isinstance(value, dict) or value.keys() != spec.keys():
            raise InvalidObservation(f"{path} must have the keys {sorted(spec)}")
        return {key: observation(value[key], spec[key], f"{path}/{key}") for key in spec}
    if isinstance(spec, list | tuple):
        if not isinstance(value, list) or len(value) != len(spec):
            raise InvalidObservation(f"{path} must have {len(spec)} entries")
        return type(spec)(observation(v, s, f"{path}/{i}") for i, (v, s) in enumerate(zip(value, spec, strict=True)))
    assert isinstance(spec, ArraySpec)
    try:
        if isinstance(value, bytes):
            return np.frombuffer(value, spec.dtype).reshape(spec.shape)
        array = _as_array(value, spec.dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidObservation(f"{path} must be an array of shape {spec.shape} and {spec.dtype}: {error}") from None
    if array.shape != spec.shape:
        raise InvalidObservation(
            f"{path} must be an array of shape {spec.shape} and {spec.dtype}; this one has the shape {array.shape}"
        )
    return array


def _as_array(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """Plain numbers as an array. Raises `ValueError` for what is no number, or no integer where one is needed."""
    given = np.asarray(value)
    if given.dtype.kind not in "biuf":  # NumPy would take a null for NaN
        raise ValueError("it is not made of numbers only")
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # beyond float32: infinite, which is refused where it is learnt from
            return given.astype(dtype)
    with np.errstate(invalid="ignore"):  # what does not fit is found right below
        array = given.astype(dtype)
    if not np.array_equal(array, given):
        raise ValueError(f"{given[array != given].flat[0]} is no {dtype}")
    return array
