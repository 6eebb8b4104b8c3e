"""Seeds that follow from other seeds: every episode of every env has one of its own."""

from __future__ import annotations

__all__ = ["derived", "spread"]

_MASK = (1 << 64) - 1


def derived(seed: int, *path: int) -> int:
    """A 31-bit seed for the thing at `path` (say env 3, episode 7) under `seed`. The same always gives the same."""
    value = seed & _MASK
    for part in path:
        value = _mix(value ^ _mix((part + 1) & _MASK))
    return _mix(value) >> 33


def spread(seed: int, num: int) -> list[int]:
    """One derived seed for each of `num` envs."""
    return [derived(seed, env) for env in range(num)]


def _mix(value: int) -> int:
    """SplitMix64's step, https://prng.di.unimi.it/splitmix64.c: neighbouring numbers come out unrelated."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
