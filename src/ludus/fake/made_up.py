"""Nests made up from specs or from an example: what fakes answer and push."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec, spec_of

__all__ = ["as_specs", "make_up"]


def as_specs(like: Nest) -> Nest:
    """Specs for what may be specs already, or examples: arrays and numbers."""

    def look(leaf: Any) -> ArraySpec | None:
        return leaf if leaf is None or isinstance(leaf, ArraySpec) else spec_of(leaf)

    return nests.map(look, like)


def make_up(specs: Nest, rng: np.random.Generator) -> Nest:
    """Random arrays of these specs, within their bounds; without those, floats around 0, and whole numbers 0 or 1."""
    return nests.map(lambda spec: None if spec is None else _array(spec, rng), specs)


def _array(spec: ArraySpec, rng: np.random.Generator) -> NDArray[Any]:
    kind = spec.dtype.kind
    if kind == "b":
        return np.asarray(rng.integers(0, 2, spec.shape), bool)
    if kind in "iu":
        low = 0 if spec.minimum is None else np.asarray(spec.minimum)
        high = np.maximum(low, 1) if spec.maximum is None else np.asarray(spec.maximum)
        return np.asarray(rng.integers(low, high, spec.shape, endpoint=True, dtype=np.int64), spec.dtype)
    made = rng.standard_normal(spec.shape)
    if spec.minimum is not None and spec.maximum is not None:
        made = rng.uniform(np.asarray(spec.minimum), np.asarray(spec.maximum), spec.shape)
    made = np.clip(made, spec.minimum, spec.maximum) if spec.minimum is not None or spec.maximum is not None else made
    return np.asarray(made, spec.dtype)
