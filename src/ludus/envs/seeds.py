"""Seeds that follow from other seeds: every episode of every env has one of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["derived", "derived_arrays", "spread"]

_MASK = (1 << 64) - 1


def derived(seed: int, *path: int) -> int:
    """A 31-bit seed for the thing at `path` (say env 3, episode 7) under `seed`. The same always gives the same."""
    value = seed & _MASK
    for part in path:
        value = _mix(value ^ _mix((part + 1) & _MASK))
    return _mix(value) >> 33


def derived_arrays(seed: int, *path: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """`derived` for many paths at once: arrays (of at least one axis) and numbers in the path are broadcast."""
    value = np.array([seed & _MASK], np.uint64)
    for part in path:
        value = _mix_arrays(value ^ _mix_arrays(np.atleast_1d(part).astype(np.uint64) + np.uint64(1)))
    return (_mix_arrays(value) >> np.uint64(33)).astype(np.int64)


def spread(seed: int, num: int) -> list[int]:
    """One derived seed for each of `num` envs."""
    return [derived(seed, env) for env in range(num)]


def _mix(value: int) -> int:
    """SplitMix64's step, https://prng.di.unimi.it/splitmix64.c: neighbouring numbers come out unrelated."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _mix_arrays(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`_mix` of each; arrays of uint64 wrap around by themselves."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
