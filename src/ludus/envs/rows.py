"""The arrays behind a `TimeStep`: allocated once for a group, seen by each env as its own few rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ludus.core import EnvSpec, TimeStep
from ludus.data import nest as nests
from ludus.data.nest import Nest

__all__ = ["allocate", "copy_into", "differs", "rows_of", "to_nest", "write"]


def allocate(spec: EnvSpec, num_envs: int) -> TimeStep:
    """Zeroed arrays for all rows; everything is allowed in the mask."""
    num_rows = num_envs * len(spec.agents)
    return TimeStep(
        obs=nests.allocate(spec.obs, (num_rows,)),
        reward=np.zeros(num_rows, np.float32),
        terminated=np.zeros(num_rows, np.bool_),
        truncated=np.zeros(num_rows, np.bool_),
        first=np.zeros(num_rows, np.bool_),
        active=np.zeros(num_rows, np.bool_),
        failed=np.zeros(num_rows, np.bool_),
        mask=np.ones((num_rows, spec.action.mask_size), np.bool_) if spec.has_mask else None,
        global_state=None if spec.global_state is None else nests.allocate(spec.global_state, (num_envs,)),
    )


def rows_of(now: TimeStep, env: int, num_agents: int) -> TimeStep:
    """The rows of one env, as views; `global_state` keeps a leading axis of 1."""
    own = slice(env * num_agents, (env + 1) * num_agents)
    views = {
        field.name: nests.take(getattr(now, field.name), own)
        for field in dataclasses.fields(TimeStep)
        if field.name != "global_state"
    }
    return TimeStep(**views, global_state=nests.take(now.global_state, slice(env, env + 1)))


def write(out: Nest, row: int, value: Nest) -> None:
    """Set one row of every array in `out`; `value` has the same structure and is cast as NumPy does."""
    kind = type(out)
    if kind is dict:
        for key, child in out.items():
            write(child, row, value[key])
    elif kind is tuple:
        for child, part in zip(out, value, strict=True):
            write(child, row, part)
    else:
        out[row] = value


def to_nest(now: TimeStep) -> dict[str, Nest]:
    """A copy of everything, for the codec."""

    def copied(leaf: Any) -> Any:
        return None if leaf is None else leaf.copy()

    return {field.name: nests.map(copied, getattr(now, field.name)) for field in dataclasses.fields(TimeStep)}


def copy_into(now: TimeStep, saved: Nest) -> None:
    """Set the arrays of `now` to what `to_nest` saved."""
    for field in dataclasses.fields(TimeStep):
        out = getattr(now, field.name)
        if out is not None:
            nests.map(np.copyto, out, saved[field.name])


def differs(one: Nest, other: Nest) -> bool:
    """Whether any bit of two nests of arrays is different; NaN is the same as NaN."""
    pairs = zip(nests.leaves(one), nests.leaves(other), strict=True)
    return any(a is not b and not np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
