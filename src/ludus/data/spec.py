"""What an array should look like, and whether a nest of arrays does.

    spec = {"image": ArraySpec((84, 84), np.uint8), "speed": ArraySpec((), np.float32, minimum=0.0)}
    validate(obs, spec)                       # SpecError: at 'image': the shape is (80, 84), not (84, 84)
    nest.allocate(spec, leading=(128,))       # zeroed arrays for 128 observations

A nest of specs is a nest with an `ArraySpec`, or `None`, at every leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.errors import SpecError

__all__ = ["ArraySpec", "spec_of", "validate", "with_leading"]

Bound: TypeAlias = "int | float | tuple[Any, ...] | None"

# A Python scalar stands for an array of any width that holds its kind of number.
_KINDS_FOR_SCALAR = {bool: "b", int: "iuf", float: "f", complex: "c"}


@dataclass(frozen=True, init=False)
class ArraySpec:
    """Shape, dtype and, where given, inclusive bounds: one number, or an array that broadcasts to the shape.

    Specs are values: equal if they say the same, and hashable. Bounds that are the same everywhere are kept as
    one number, others as nested tuples.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    minimum: Bound = None
    maximum: Bound = None
    name: str = ""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DTypeLike,
        minimum: ArrayLike | None = None,
        maximum: ArrayLike | None = None,
        name: str = "",
    ) -> None:
        dims = tuple(int(dim) for dim in shape)
        if any(dim < 0 for dim in dims):
            raise SpecError(f"a spec has the shape {dims}; dimensions are not negative", path=name)
        fields = {
            "shape": dims,
            "dtype": np.dtype(dtype),
            "minimum": _bound(minimum, dims, name),
            "maximum": _bound(maximum, dims, name),
            "name": name,
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    def with_leading(self, *dims: int) -> ArraySpec:
        """The same with axes before the others, for batches."""
        return replace(self, shape=(*dims, *self.shape))

    def allocate(self, leading: tuple[int, ...] = ()) -> NDArray[Any]:
        """A zeroed array."""
        return np.zeros((*leading, *self.shape), self.dtype)

    def check(self, value: Any, *, path: str = "") -> None:
        """Raise `SpecError` unless `value` has this shape and dtype and is within the bounds; NaN never is.

        A Python number will do for a spec of shape `()` and a dtype of its kind.
        """
        if type(value) in _KINDS_FOR_SCALAR:
            if self.dtype.kind not in _KINDS_FOR_SCALAR[type(value)]:
                raise SpecError(f"a Python {type(value).__name__} does not fit dtype {self.dtype}", path=path)
        elif not isinstance(value, np.ndarray | np.generic):
            raise SpecError(f"there is a {type(value).__name__}, not an array", path=path)
        elif value.dtype != self.dtype:
            raise SpecError(f"the dtype is {value.dtype}, not {self.dtype}", path=path)
        if np.shape(value) != self.shape:
            raise SpecError(f"the shape is {np.shape(value)}, not {self.shape}", path=path)
        if self.minimum is not None and not np.all(np.greater_equal(value, self.minimum)):
            raise SpecError(f"a value is not at least {self.minimum}: {np.min(value)}", path=path)
        if self.maximum is not None and not np.all(np.less_equal(value, self.maximum)):
            raise SpecError(f"a value is not at most {self.maximum}: {np.max(value)}", path=path)


def validate(nest: Nest, spec: Nest) -> None:
    """Raise `SpecError`, naming the path, unless the nest has the structure of the spec and every leaf fits.

    Where the spec is `None` the nest must be, too.
    """

    def check(path: str, leaf_spec: Any, leaf: Any) -> None:
        if isinstance(leaf_spec, ArraySpec):
            leaf_spec.check(leaf, path=path)
        elif leaf_spec is not None:
            raise SpecError(f"the spec is a {type(leaf_spec).__name__}, not an ArraySpec", path=path)
        elif leaf is not None:
            raise SpecError(f"there is a {type(leaf).__name__} where the spec has None", path=path)

    nests.map_with_path(check, spec, nest)


def spec_of(nest: Nest) -> Nest:
    """The spec of every leaf, named by its path; `None` for `None`. Raises `SpecError` for other objects."""

    def look(path: str, leaf: Any) -> ArraySpec | None:
        if leaf is None:
            return None
        if type(leaf) not in _KINDS_FOR_SCALAR and not isinstance(leaf, np.ndarray | np.generic):
            raise SpecError(f"a {type(leaf).__name__} has no array spec", path=path)
        array = np.asarray(leaf)
        return ArraySpec(array.shape, array.dtype, name=path)

    return nests.map_with_path(look, nest)


def with_leading(spec: Nest, *dims: int) -> Nest:
    """A nest of specs with axes before the others, for batches."""
    return nests.map(lambda leaf: None if leaf is None else leaf.with_leading(*dims), spec)


def _bound(bound: ArrayLike | None, shape: tuple[int, ...], name: str) -> Bound:
    if bound is None:
        return None
    array = np.asarray(bound)
    try:
        np.broadcast_to(array, shape)
    except ValueError:
        raise SpecError(f"a bound of shape {array.shape} does not broadcast to {shape}", path=name) from None
    if array.size and (array == array.flat[0]).all():
        return _number(array.flat[0].item())
    bounds: Bound = _tuples(array.tolist())
    return bounds


def _number(value: Any) -> int | float:
    if not isinstance(value, int | float):
        raise SpecError(f"a bound is a {type(value).__name__}, not a number")
    return value


def _tuples(value: Any) -> Any:
    return tuple([_tuples(item) for item in value]) if isinstance(value, list) else value
