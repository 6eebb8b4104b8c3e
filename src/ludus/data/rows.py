"""Rows of many callers: their layout, joined into one batch, and the batch's outputs split again.

layout = RowLayout.of((image,), {})
leaves = layout.take((image,), {})                 # each with a row axis, or `None`: another layout
args, kwargs = layout.nest(RowMemory().join(layout, [leaves, others], num_rows=2))
first, second = unstack(outputs, 2, "forward")
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.data import nest as nests
from ludus.data.nest import Nest, Structure

__all__ = ["MAX_LAYOUTS", "Layouts", "Leaves", "RowLayout", "RowMemory", "own_rows", "row_count", "unstack"]

MAX_LAYOUTS = 64  # that are remembered
_NUMPY_KEEPS_LOCK = 500  # elements; NumPy copies smaller arrays without releasing the interpreter's lock
_CONTAINERS = (dict, list, tuple)

Leaves = list[NDArray[Any] | None]
"""The arrays of a call, each with a leading axis of rows; `None` where `None` was given."""


class RowLayout:
    """Structure, shapes and dtypes of the arguments of one row."""

    def __init__(self, structure: Structure, specs: Sequence[tuple[tuple[int, ...], np.dtype[Any]] | None]) -> None:
        self.structure = structure
        self.specs = tuple(specs)
        arguments, keywords = structure.children
        self._places = nests.unflatten(structure, list(range(len(self.specs))))
        self._is_plain = not keywords.keys and all(child.kind is None for child in arguments.children)

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> RowLayout:
        """Of one row, without a row axis. Raises `SpecError` for what can be no array."""
        given = (tuple(args), dict(kwargs))
        leaves, structure = nests.flatten(given)
        arrays = [_array(leaf, path) for leaf, path in zip(leaves, nests.paths(given), strict=True)]
        if all(array is None for array in arrays):
            raise errors.DataError("forward was given no array, so there is nothing to run the model on")
        return cls(structure, [None if array is None else (array.shape, array.dtype) for array in arrays])

    @classmethod
    def of_rows(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> RowLayout:
        """Of arguments that have a row axis already."""
        row_count(args, kwargs)
        first = nests.map(lambda leaf: None if leaf is None else np.asarray(leaf)[0], (tuple(args), dict(kwargs)))
        return cls.of(*first)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowLayout) and (self.structure, self.specs) == (other.structure, other.specs)

    def __hash__(self) -> int:
        return hash((self.structure, self.specs))

    def __str__(self) -> str:
        named = zip(nests.paths(self.nest(list(range(len(self.specs))))), self.specs, strict=True)
        return ", ".join(f"{path}: {'None' if spec is None else f'{spec[1]}{list(spec[0])}'}" for path, spec in named)

    def take(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Leaves | None:
        """The leaves of one row, each with an axis before it; `None` if it does not look like this."""
        if self._is_plain:  # by far the most calls
            if kwargs or len(args) != len(self.specs):
                return None
            leaves: Sequence[Any] = args
        else:
            found = self._in_order(args, kwargs)
            if found is None:
                return None
            leaves = found
        taken: Leaves = []
        for leaf, spec in zip(leaves, self.specs, strict=True):
            if spec is None or leaf is None:
                if spec is not leaf:
                    return None
                taken.append(None)
                continue
            if type(leaf) is np.ndarray:
                array = leaf
            elif isinstance(leaf, _CONTAINERS):  # NumPy would make one array of them
                return None
            else:
                array = np.asarray(leaf)
            if array.shape != spec[0] or array.dtype != spec[1]:
                return None
            taken.append(array[None])
        return taken

    def take_rows(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Leaves | None:
        """The leaves of arguments that have a row axis already."""
        leaves = self._in_order(args, kwargs)
        if leaves is None:
            return None
        for leaf, spec in zip(leaves, self.specs, strict=True):
            if spec is None or leaf is None:
                if spec is not leaf:
                    return None
            elif type(leaf) is not np.ndarray or leaf.shape[1:] != spec[0] or leaf.dtype != spec[1]:
                return None
        return leaves

    def _in_order(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """The leaves, dicts in the order of this layout."""
        leaves, structure = nests.flatten((args, kwargs))
        if structure == self.structure:
            return leaves
        try:
            return nests.leaves(nests.map(lambda _place, leaf: leaf, self._places, (args, kwargs)))
        except errors.SpecError:
            return None

    def nest(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`args` and `kwargs` with these leaves."""
        args, kwargs = nests.unflatten(self.structure, leaves)
        return args, kwargs


class Layouts:
    """The layouts that calls of one model have. With an `example`, there is no other than its own.

    Without, the last `MAX_LAYOUTS` are remembered; one that was forgotten is made again. Safe to share between threads.
    """

    def __init__(self, model: str, example: RowLayout | None = None) -> None:
        self._model = model
        self._has_example = example is not None
        self._known: tuple[RowLayout, ...] = () if example is None else (example,)
        self._lock = threading.Lock()

    def take(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[RowLayout, Leaves]:
        """The layout of one row, and its leaves. Raises `SpecError` for what the model cannot take."""
        return self._find(RowLayout.take, RowLayout.of, args, kwargs)

    def take_rows(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[RowLayout, Leaves]:
        """The same for arguments that have a row axis."""
        return self._find(RowLayout.take_rows, RowLayout.of_rows, args, kwargs)

    def _find(self, take: Any, make: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[RowLayout, Leaves]:
        for layout in self._known:
            leaves = take(layout, args, kwargs)
            if leaves is not None:
                return layout, leaves
        layout = self._add(make(args, kwargs))
        leaves = take(layout, args, kwargs)
        assert leaves is not None, "it is made of the same arguments"
        return layout, leaves

    def _add(self, layout: RowLayout) -> RowLayout:
        if self._has_example:
            raise errors.SpecError(
                f"this call of {self._model!r} does not look like its forward_args: it was given {layout}, and it "
                f"takes {self._known[0]}, each without the batch axis"
            )
        with self._lock:
            for known in self._known:
                if known == layout:  # another thread was quicker
                    return known
            self._known = (*self._known[-MAX_LAYOUTS + 1 :], layout)  # replaced: others may be looking through it
        return layout


def row_count(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """How many rows all leaves have. Raises `DataError` unless it is one number, from 1."""
    counts = {np.shape(leaf)[:1] for leaf in nests.leaves((tuple(args), dict(kwargs))) if leaf is not None}
    if len(counts) != 1 or counts == {()} or counts == {(0,)}:
        raise errors.DataError(f"the arguments must have one number of rows, from 1; they have {sorted(counts)}")
    return int(counts.pop()[0])


class RowMemory(threading.local):
    """Memory in which each thread joins its batches, used again for the next batch of the same layout."""

    def __init__(self) -> None:
        self._batches: dict[int, tuple[RowLayout, Leaves]] = {}  # with the layout, so that no other has its id

    def __len__(self) -> int:
        return len(self._batches)

    def join(self, layout: RowLayout, parts: Sequence[Leaves], *, num_rows: int, max_rows: int = 0) -> Leaves:
        """The rows of all parts, one after the other; valid until the next call. `max_rows`: do not grow beyond it."""
        batch: Leaves = []
        for index, memory in enumerate(self._of(layout, num_rows, max_rows)):
            if memory is None:
                batch.append(None)
                continue
            rows = memory[:num_rows]
            _copy_rows([part[index] for part in parts], rows)
            batch.append(rows)
        return batch

    def _of(self, layout: RowLayout, num_rows: int, max_rows: int) -> Leaves:
        known = self._batches.get(id(layout))
        if known is not None and next(len(leaf) for leaf in known[1] if leaf is not None) >= num_rows:
            return known[1]
        if known is None and len(self._batches) >= MAX_LAYOUTS:
            del self._batches[next(iter(self._batches))]
        room = max(num_rows, min(2 * num_rows, max_rows))
        memory: Leaves = [None if spec is None else np.empty((room, *spec[0]), spec[1]) for spec in layout.specs]
        self._batches[id(layout)] = layout, memory
        return memory


def _copy_rows(sources: list[NDArray[Any] | None], rows: NDArray[Any]) -> None:
    """Copy arrays into `rows`, one after the other.

    As bytes: NumPy releases the interpreter's lock for every array that it copies, and taking it back, beside a busy
    event loop, takes longer than the copy.
    """
    if not rows.size:
        return
    into, at = rows.data.cast("B"), 0
    for source in sources:
        assert source is not None, "of one layout"
        content = np.ascontiguousarray(source).data.cast("B")
        into[at : at + len(content)] = content
        at += len(content)


def own_rows(outputs: Nest, num_rows: int, what: str, *, is_owned: bool = False) -> Nest:
    """The outputs of a batch, in memory that each caller may write to; not copied if `is_owned`.

    As a module left them they may share memory with the batch, the weights and each other. Raises `DataError` unless
    the first axis of every leaf is the batch's.
    """

    def check(path: str, leaf: NDArray[Any] | None) -> NDArray[Any] | None:
        if leaf is None:
            return None
        if leaf.shape[:1] != (num_rows,):
            raise errors.DataError(
                f"{what} was given {num_rows} rows and {path or 'its output'} has the shape {list(leaf.shape)}: the "
                "first axis of all outputs must be the batch's"
            )
        return leaf if is_owned else _copied(leaf)

    return check("", outputs) if type(outputs) is np.ndarray else nests.map_with_path(check, outputs)


def _copied(leaf: NDArray[Any]) -> NDArray[Any]:
    """In memory of its own, C-contiguous."""
    if leaf.size < _NUMPY_KEEPS_LOCK or not leaf.flags.c_contiguous:
        return leaf.copy()
    copy = np.empty_like(leaf)
    copy.data.cast("B")[:] = leaf.data.cast("B")  # as bytes: see `_copy_rows`
    return copy


def unstack(outputs: Nest, num_rows: int, what: str) -> list[Nest]:
    """One nest for each row, arrays as views. Raises `DataError` if there are not `num_rows`."""
    rows = list(outputs) if type(outputs) is np.ndarray and outputs.ndim else nests.unstack(outputs)
    if len(rows) != num_rows:
        raise errors.DataError(
            f"{what} was called for {num_rows} calls and returned {len(rows)} rows; it must return one for each"
        )
    return rows


def _array(leaf: Nest, path: str) -> NDArray[Any] | None:
    if leaf is None:
        return None
    if isinstance(leaf, _CONTAINERS):
        raise errors.SpecError(
            f"a {type(leaf).__name__} cannot be given to a model; give a plain dict, list or tuple", path=path
        )
    array = np.asarray(leaf)
    if array.dtype.kind not in "biufc":
        raise errors.SpecError(f"a {type(leaf).__name__} cannot be given to a model; give numbers", path=path)
    return array
