"""What a store of trajectories keeps of each step, and in which columns.

spec = TrajectorySpec(obs=env_spec.obs, action=env_spec.action.array, frame_stack=4)

An entry of the store is one observation of one row, with what was done there. Its columns:

    key          its own number; -1 while it is being written, which is how readers of other processes notice
    next         the key of the row's next entry; -1: not known
    prev         the key of the row's previous entry, or of an older frame; only with `frame_stack`
    flags        FIRST, ACTIVE, TERMINATED, TRUNCATED
    obs/…, action, reward, mask, logp, version
    state        the number of the recurrent state before this observation; -1: not kept
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError, DataError

__all__ = ["ACTIVE", "DONE", "FIRST", "TERMINATED", "TRUNCATED", "TrajectorySpec"]

FIRST, ACTIVE, TERMINATED, TRUNCATED = 1, 2, 4, 8
DONE = TERMINATED | TRUNCATED

_KEY = ArraySpec((), np.int64)


@dataclass(frozen=True, kw_only=True)
class TrajectorySpec:
    """`obs` and `state` are nests of `ArraySpec`s of one row, as in `Segment.allocate`."""

    obs: Nest
    action: ArraySpec
    mask_size: int = 0  # 0: there are no masks
    state: Nest = None  # None: recurrent states are not kept
    has_logp: bool = False
    has_version: bool = False
    frame_stack: int = 1
    """Leaves of `obs` with two axes or more, of which the first has so many entries, are stacks of frames, the newest
    last: each frame is stored once. 1: there are none."""

    def __post_init__(self) -> None:
        if self.frame_stack < 1:
            raise ConfigError(f"frame_stack={self.frame_stack}: a stack has 1 frame or more")
        if self.frame_stack > 1 and not any(self.is_stack(leaf) for leaf in nests.leaves(self.obs) if leaf is not None):
            raise ConfigError(f"frame_stack={self.frame_stack}, but no observation has so many frames: {self.obs}")

    def is_stack(self, leaf: ArraySpec) -> bool:
        return self.frame_stack > 1 and len(leaf.shape) > 1 and leaf.shape[0] == self.frame_stack

    @property
    def obs_columns(self) -> dict[str, ArraySpec]:
        """The leaves of `obs`, as observations have them, by the names of their columns."""
        return _named("obs", self.obs)

    def columns(self) -> dict[str, ArraySpec]:
        """Of an entry."""
        columns = {"key": _KEY, "next": _KEY, "flags": ArraySpec((), np.uint8), "reward": ArraySpec((), np.float32)}
        columns["action"] = ArraySpec(self.action.shape, self.action.dtype)
        for name, leaf in self.obs_columns.items():
            columns[name] = ArraySpec(leaf.shape[1:] if self.is_stack(leaf) else leaf.shape, leaf.dtype)
        if self.mask_size:
            columns["mask"] = ArraySpec((self.mask_size,), np.bool_)
        if self.has_logp:
            columns["logp"] = ArraySpec((), np.float32)
        if self.has_version:
            columns["version"] = _KEY
        if self.frame_stack > 1:
            columns["prev"] = _KEY
        if self.state is not None:
            columns["state"] = _KEY
        return columns

    def state_columns(self) -> dict[str, ArraySpec]:
        """Of a recurrent state; `owner` is the key of its entry."""
        return {"owner": _KEY, **_named("state", self.state)}

    def to_json(self) -> dict[str, Any]:
        return {
            "obs": _to_json(self.obs),
            "action": _to_json(self.action),
            "mask_size": self.mask_size,
            "state": _to_json(self.state),
            "has_logp": self.has_logp,
            "has_version": self.has_version,
            "frame_stack": self.frame_stack,
        }

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> TrajectorySpec:
        """Raises `DataError` for what `to_json` did not write."""
        try:
            parsed = {name: _from_json(saved[name]) for name in ("obs", "action", "state")}
            return cls(**{**saved, **parsed})
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"this does not describe trajectories: {error!r}") from None


def _named(prefix: str, nest: Nest) -> dict[str, ArraySpec]:
    named = zip(nests.paths(nest), nests.leaves(nest), strict=True)
    return {f"{prefix}/{path}": leaf for path, leaf in named if leaf is not None}


def _to_json(node: Nest) -> Any:
    match node:
        case None:
            return None
        case dict():
            return {"dict": [[key, _to_json(child)] for key, child in node.items()]}
        case list() | tuple():
            return {type(node).__name__: [_to_json(child) for child in node]}
        case _:
            return {"leaf": [node.dtype.str, list(node.shape)]}


def _from_json(saved: Any) -> Nest:
    if saved is None:
        return None
    ((kind, content),) = saved.items()
    match kind:
        case "dict":
            return {key: _from_json(child) for key, child in content}
        case "list":
            return [_from_json(child) for child in content]
        case "tuple":
            return tuple(_from_json(child) for child in content)
        case _:
            dtype, shape = content
            return ArraySpec(shape, np.dtype(dtype))
