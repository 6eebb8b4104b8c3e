"""Nested arrays: dicts, lists and tuples, to any depth, of NumPy arrays and scalars.

    batch = nest.stack([{"obs": obs_0, "reward": 0.5}, {"obs": obs_1, "reward": 1.0}])
    batch["obs"].shape, batch["reward"]                     # (2, ...), array([0.5, 1.0])
    rows = nest.unstack(batch)                              # the two again

Only the exact types `dict`, `list` and `tuple` are containers; everything else is a leaf. Dict keys are strings
or integers; their order does not matter between nests, and results have the order of the first. When nests do not
match, `SpecError` names the path where they part.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.data.fault import Fault, spell
from ludus.errors import DataError, SpecError

__all__ = [
    "Nest",
    "Structure",
    "allocate",
    "concat",
    "flatten",
    "leaves",
    "map",
    "map_with_path",
    "paths",
    "split",
    "stack",
    "take",
    "unflatten",
    "unstack",
]

Nest: TypeAlias = Any
"""A leaf, or a dict, list or tuple of nests. (`Any` to mypy, whose containers are invariant.)"""

_CONTAINERS = frozenset({dict, list, tuple})
_NUMBERS = frozenset({bool, int, float, complex})


@dataclass(frozen=True)
class Structure:
    """A nest without its leaves. `kind` is `dict`, `list`, `tuple`, or `None` for a leaf; `keys` are a dict's."""

    kind: type | None = None
    keys: tuple[str | int, ...] = ()
    children: tuple[Structure, ...] = ()

    @property
    def num_leaves(self) -> int:
        return 1 if self.kind is None else sum(child.num_leaves for child in self.children)


_LEAF = Structure()


# --- walking


def map(fn: Callable[..., Any], *nests: Nest) -> Nest:
    """`fn(leaf_of_first, leaf_of_second, ...)` at every leaf, in the structure of the first nest."""
    return _guard(_map_column, nests, fn)


def map_with_path(fn: Callable[..., Any], *nests: Nest) -> Nest:
    """Like `map`; `fn` gets the leaf's path (`obs/image/0`) as its first argument."""
    return _guard(_map_column, (_paths(nests[0], ()), *nests), fn)


def leaves(nest: Nest) -> list[Any]:
    """The leaves, dicts in insertion order."""
    kind = type(nest)
    if kind not in _CONTAINERS:
        return [nest]
    found: list[Any] = []
    for child in nest.values() if kind is dict else nest:
        if type(child) in _CONTAINERS:
            found += leaves(child)
        else:
            found.append(child)
    return found


def paths(nest: Nest) -> list[str]:
    """The path of every leaf, in the order of `leaves`. A nest that is one leaf has the path `""`."""
    return leaves(_paths(nest, ()))


def flatten(nest: Nest) -> tuple[list[Any], Structure]:
    """The leaves, and the structure to put them back into."""
    return leaves(nest), _structure(nest)


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Nest:
    """The inverse of `flatten`."""
    if len(leaves) != structure.num_leaves:
        raise DataError(f"the structure has {structure.num_leaves} leaves, {len(leaves)} were given")
    remaining = iter(leaves)

    def build(node: Structure) -> Nest:
        if node.kind is None:
            return next(remaining)
        children = [build(child) for child in node.children]
        return dict(zip(node.keys, children, strict=True)) if node.kind is dict else node.kind(children)

    return build(structure)


# --- joining


def stack(nests: Sequence[Nest], axis: int = 0, *, out: Nest | None = None) -> Nest:
    """One nest whose leaves have a new axis of `len(nests)`. It never shares memory with what it is made of.

    Numbers become arrays. A leaf that is `None` everywhere stays `None` (an argument nobody gave). Any other leaf
    that is not a number (strings, bytes, `None` here and there, objects) becomes a one-dimensional object array of
    the values as they were, which `unstack` gives back one by one.

    `out` is a nest of arrays with room for at least `len(nests)` rows: the rows are written there, with NumPy's
    "same_kind" casting, and views of them returned. It goes with `axis=0` and with leaves that are numbers.
    """
    if not nests:
        raise DataError("cannot stack zero nests: their structure is unknown")
    if out is None:
        return _guard(_stack_column, nests, axis)
    if axis != 0:
        raise DataError("`out` holds rows: it goes with axis=0 only")
    return _guard(_stack_into, [out, *nests])


def concat(nests: Sequence[Nest], axis: int = 0) -> Nest:
    """One nest whose leaves are joined along an axis they have. `None` everywhere stays `None`."""
    if not nests:
        raise DataError("cannot concatenate zero nests: their structure is unknown")

    def join(*column: Any) -> Any:
        if all(leaf is None for leaf in column):
            return None
        for leaf in column:
            _check_axis(leaf, axis)
        return _numpy(np.concatenate, column, axis)

    return _guard(_map_column, nests, join)


# --- parting


def take(nest: Nest, index: Any) -> Nest:
    """`leaf[index]` at every leaf: an integer, a slice, an array of indices, a mask. `None` stays `None`."""

    def pick(leaf: Any) -> Any:
        if leaf is None:
            return None
        _check_axis(leaf, 0)
        return leaf[index]

    return _guard(_map_column, (nest,), pick)


def split(nest: Nest, num_or_sizes: int | Sequence[int], axis: int = 0) -> list[Nest]:
    """Views of parts along `axis`: so many equal ones, or ones of these sizes. `None` goes into every part."""
    length = _shared_length(nest, axis)
    if isinstance(num_or_sizes, int):
        if num_or_sizes < 1 or length % num_or_sizes:
            raise DataError(f"cannot split {length} rows into {num_or_sizes} equal parts; give the sizes")
        sizes: Sequence[int] = [length // num_or_sizes] * num_or_sizes
    else:
        sizes = num_or_sizes
        if sum(sizes) != length or any(size < 0 for size in sizes):
            raise DataError(f"the sizes {list(sizes)} do not add up to the {length} rows there are")
    parts, start = [], 0
    for size in sizes:
        index = (*[slice(None)] * axis, slice(start, start + size))
        parts.append(take(nest, index))
        start += size
    return parts


def unstack(nest: Nest) -> list[Nest]:
    """One nest per row of the leading axis; arrays are views. `None` is given to every row."""
    length = _first_length(nest)
    if length is None:
        raise DataError("no leaf of the nest has a leading axis, so the number of rows is unknown")
    rows: list[Nest] = _guard(_unstack_node, nest, length)
    return rows


def allocate(spec: Nest, leading: tuple[int, ...] = ()) -> Nest:
    """Zeroed arrays for a nest of specs (or of arrays: of anything with `shape` and `dtype`)."""

    def zeros(leaf: Any) -> Any:
        if leaf is None:
            return None
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise Fault(f"a {_name(leaf)} has no shape and dtype to allocate from")
        return np.zeros((*leading, *leaf.shape), leaf.dtype)

    return _guard(_map_column, (spec,), zeros)


# --- columns: what several nests hold at one place, as a sequence


def _guard(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except Fault as fault:
        raise SpecError(fault.message, path=fault.path) from None


def _children(column: Sequence[Nest]) -> Iterator[tuple[str | int, Sequence[Nest]]]:
    """The columns inside a column of containers, key by key. Raises `Fault` where they are not alike."""
    first = column[0]
    kind, length = type(first), len(first)
    if len(set(builtins.map(type, column))) > 1 or len(set(builtins.map(len, column))) > 1:
        raise _difference(first, next(x for x in column if type(x) is not kind or len(x) != length))
    if kind is not dict:
        yield from enumerate(zip(*column, strict=True))
        return
    for key in first:
        try:
            child = [other[key] for other in column]
        except KeyError:
            raise _difference(first, next(other for other in column if key not in other)) from None
        yield key, child


def _walk(visit: Callable[..., Nest], column: Sequence[Nest], *args: Any) -> Nest:
    """`visit(child, *args)` at every column inside a column of containers."""
    results = {}
    for key, child in _children(column):
        try:
            results[key] = visit(child, *args)
        except Fault as fault:
            raise fault.at(key) from None
    kind = type(column[0])
    return results if kind is dict else kind(results.values())


def _map_column(column: Sequence[Nest], fn: Callable[..., Any]) -> Nest:
    if type(column[0]) in _CONTAINERS:
        return _walk(_map_column, column, fn)
    _check_no_container(column)
    return fn(*column)


def _stack_column(column: Sequence[Nest], axis: int) -> Nest:
    first = column[0]
    kind = type(first)
    if kind in _CONTAINERS:
        return _walk(_stack_column, column, axis)
    kinds = set(builtins.map(type, column))
    if kind is np.ndarray and len(kinds) == 1:
        shape = first.shape
        _check_shapes(column, shape)
        if axis == 0 and shape:
            # Far quicker than np.stack, whose work per array is in Python.
            return _numpy(np.concatenate, column).reshape((len(column), *shape))
        return _numpy(np.stack, column, axis)
    if axis == 0 and kinds <= _NUMBERS:
        return np.array(column)  # of objects, if integers do not fit into 64 bits
    if kinds == {type(None)}:
        return None
    _check_no_container(column)
    if all(_is_numeric(leaf) for leaf in column):
        arrays = [np.asarray(leaf) for leaf in column]
        _check_shapes(arrays, arrays[0].shape)
        return _numpy(np.stack, arrays, axis)
    return _objects(column)


def _stack_into(column: Sequence[Nest]) -> Nest:
    """The column's first is the array, or the nest of them, that the others are written to."""
    out, *rest = column
    if type(out) in _CONTAINERS:
        return _walk(_stack_into, column)
    if out is None and all(leaf is None for leaf in rest):
        return None
    if not isinstance(out, np.ndarray) or out.ndim == 0:
        raise Fault(f"`out` must be an array of rows here, not a {_name(out)}")
    if len(out) < len(rest):
        raise Fault(f"`out` has {len(out)} rows, {len(rest)} are needed")
    rows = out[: len(rest)]
    shape = rows.shape[1:]
    if shape and rows.flags.c_contiguous and set(builtins.map(type, rest)) == {np.ndarray}:
        _check_shapes(rest, shape)
        _numpy(np.concatenate, rest, 0, rows.reshape((len(rest) * shape[0], *shape[1:])))
        return rows
    stacked = _stack_column(rest, 0)
    if np.shape(stacked) != rows.shape:
        raise Fault(f"the shapes differ: {shape} in `out`, {np.shape(stacked)[1:]} in the rows")
    _numpy(np.copyto, rows, stacked)
    return rows


# --- one nest


def _paths(node: Nest, at: tuple[str | int, ...]) -> Nest:
    """The same nest with every leaf's path in its place."""
    kind = type(node)
    if kind is dict:
        return {key: _paths(child, (*at, key)) for key, child in node.items()}
    if kind is list or kind is tuple:
        return kind([_paths(child, (*at, index)) for index, child in enumerate(node)])
    return spell(at)


def _structure(node: Nest) -> Structure:
    kind = type(node)
    if kind not in _CONTAINERS:
        return _LEAF
    keys = tuple(node) if kind is dict else ()
    return Structure(kind, keys, tuple([_structure(child) for child in (node.values() if kind is dict else node)]))


def _unstack_node(node: Nest, length: int) -> list[Nest]:
    kind = type(node)
    if kind not in _CONTAINERS:
        if node is None:
            return [None] * length
        _check_axis(node, 0)
        if len(node) != length:
            raise Fault(f"there are {len(node)} rows where the first leaf has {length}")
        return list(node)
    keys = list(node) if kind is dict else range(len(node))
    columns = []
    for key in keys:
        try:
            columns.append(_unstack_node(node[key], length))
        except Fault as fault:
            raise fault.at(key) from None
    rows = zip(*columns, strict=True) if columns else [()] * length
    return [dict(zip(keys, row, strict=True)) if kind is dict else kind(row) for row in rows]


def _first_length(nest: Nest) -> int | None:
    """The number of rows of the first leaf that has any."""
    for leaf in leaves(nest):
        if shape := getattr(leaf, "shape", ()):
            return int(shape[0])
    return None


def _shared_length(nest: Nest, axis: int) -> int:
    """The size of all leaves along `axis`, counted from the front: leaves differ in how many axes they have."""
    if axis < 0:
        raise DataError(f"axis {axis} is not the same axis in all leaves; count from the front")
    lengths: list[int] = []

    def look(leaf: Any) -> None:
        if leaf is not None:
            _check_axis(leaf, axis)
            lengths.append(leaf.shape[axis])
            if lengths[-1] != lengths[0]:
                raise Fault(f"axis {axis} has {lengths[-1]} rows where the first leaf has {lengths[0]}")

    _guard(_map_column, (nest,), look)
    if not lengths:
        raise DataError(f"no leaf of the nest has an axis {axis}, so the number of rows is unknown")
    return lengths[0]


# --- leaves


def _name(value: Any) -> str:
    return type(value).__name__


def _is_numeric(leaf: Any) -> bool:
    if isinstance(leaf, np.generic):
        return leaf.dtype.kind not in "SU"
    return type(leaf) in _NUMBERS or isinstance(leaf, np.ndarray)


def _objects(column: Sequence[Any]) -> NDArray[np.object_]:
    array = np.empty(len(column), object)
    for row, leaf in enumerate(column):  # array[:] = column would look inside sequences
        array[row] = leaf
    return array


def _difference(first: Any, other: Any) -> Fault:
    if type(first) is not type(other):
        return Fault(f"the nests differ: a {_name(first)} here, a {_name(other)} there")
    if type(first) is dict:
        return Fault(f"the nests differ: keys {sorted(first, key=str)} here, {sorted(other, key=str)} there")
    return Fault(f"the nests differ: {len(first)} items here, {len(other)} there")


def _check_no_container(column: Sequence[Any]) -> None:
    for leaf in column:
        if type(leaf) in _CONTAINERS:
            raise _difference(column[0], leaf)


def _check_axis(leaf: Any, axis: int) -> None:
    num_axes = len(getattr(leaf, "shape", ()))
    if not -num_axes <= axis < num_axes:
        raise Fault(f"a {_name(leaf)} with {num_axes} axes has no axis {axis}")


def _check_shapes(arrays: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> None:
    for array in arrays:
        if array.shape != shape:
            raise Fault(f"the shapes differ: {shape} here, {array.shape} there")


def _numpy(fn: Callable[..., Any], *args: Any) -> Any:
    """Call NumPy; what it refuses (a promotion, a cast, an axis) becomes a `Fault` that gets a path."""
    try:
        return fn(*args)
    except (TypeError, ValueError) as error:
        raise Fault(str(error)) from error
