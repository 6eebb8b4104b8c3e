"""Validates what envs return: rewards and floats must be finite, choices must be in their space."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.errors import EnvError

__all__ = ["Validator", "check_sizes"]

_MANY = 1 << 20  # numbers: of these a call costs little, and as many ones would need memory


class Validator:
    """Checks the leaves of observations, of any number of rows, and their rewards against a nest of `ArraySpec`s."""

    def __init__(self, obs: Nest) -> None:
        specs = list(enumerate(zip(nests.paths(obs), nests.leaves(obs), strict=True)))
        self._floats = [(index, path) for index, (path, spec) in specs if spec.dtype.kind == "f"]
        self._choices = [
            (index, path, np.asarray(spec.minimum), np.asarray(spec.maximum))
            for index, (path, spec) in specs
            if spec.dtype == np.int64 and len(spec.shape) < 2 and spec.minimum is not None and spec.maximum is not None
        ]
        self._ones: dict[int, NDArray[np.float32]] = {}  # by their number

    def fault(self, obs: Sequence[NDArray[Any]], reward: NDArray[np.float32]) -> str:
        """What is wrong; empty if nothing is."""
        return self.reward_fault(reward) or self.obs_fault(obs)

    def reward_fault(self, reward: NDArray[np.float32]) -> str:
        if self._is_finite(reward):
            return ""
        value = reward[~np.isfinite(reward)][0]
        return f"a reward is {value}, no finite number" + (" (None is read as nan)" if np.isnan(value) else "")

    def obs_fault(self, obs: Sequence[NDArray[Any]]) -> str:
        for index, path in self._floats:
            leaf = obs[index]
            if not self._is_finite(leaf):
                return f"{_named(path)} holds {leaf[~np.isfinite(leaf)][0]}, no finite number"
        for index, path, low, high in self._choices:
            leaf = obs[index]
            if np.count_nonzero(leaf < low) or np.count_nonzero(leaf > high):
                value = leaf[(leaf < low) | (leaf > high)][0]
                return f"{_named(path)} holds {value}, which its space does not have: it goes from {low} to {high}"
        return ""

    def _is_finite(self, array: NDArray[Any]) -> bool:
        """A sum is finite only if all its parts are, and costs a quarter of looking at each; this is done if it is not,
        because that of large numbers may not be either."""
        flat = array.ravel()
        if flat.size > _MANY:
            return bool(np.isfinite(flat).all())
        ones = self._ones.get(flat.size)
        if ones is None:
            ones = self._ones[flat.size] = np.ones(flat.size, np.float32)
        return isfinite(flat.dot(ones)) or bool(np.isfinite(flat).all())


def check_sizes(out: Nest, value: Nest, path: str = "") -> None:
    """Raise `EnvError` unless an observation has as many numbers as a row of `out`: NumPy spreads one over many."""
    if type(out) is dict:
        for key, child in out.items():
            check_sizes(child, value[key], f"{path}/{key}" if path else str(key))
    elif type(out) is tuple:
        for number, (child, part) in enumerate(zip(out, value, strict=True)):
            check_sizes(child, part, f"{path}/{number}" if path else str(number))
    elif np.size(value) != out[0].size:
        raise EnvError(f"{_named(path)} has the shape {np.shape(value)}, where its space has {out.shape[1:]}")


def _named(path: str) -> str:
    return f"the observation {path!r}" if path else "the observation"
