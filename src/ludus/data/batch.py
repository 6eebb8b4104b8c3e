"""Batch: named nests whose arrays share their leading axes. What moves between simulators, buffers and trainers.

    batch = Batch(obs={"image": images, "speed": speeds}, reward=rewards)     # every array has 128 rows
    len(batch), batch.reward, batch["obs"]["image"]                           # 128, and the arrays themselves
    batch[3], batch[:64], batch[indices]                                      # one row as a dict; Batches
    for minibatch in batch.minibatches(32, rng=rng): ...
    tensors = batch.to_torch(device)                                          # shares memory where it can

This file is the one door to `torch` on this floor, and opens it only when asked.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.errors import DataError, MissingExtra, SpecError

__all__ = ["Batch", "load_torch"]


class Batch:
    """Named nests of arrays with the same first `num_axes` axes, e.g. 1 for `[B, ...]`, 2 for `[T, B, ...]`.

    A string key gives a nest, anything else indexes the leading axis. Names are also attributes, unless a method
    has the name already. `len` and iteration are over rows. A batch holds the arrays it was given and its slices
    are views; it does not change once made, though the arrays may. Leaves that are `None` stay.
    """

    __slots__ = ("_fields", "_leading")

    def __init__(self, fields: Mapping[str, Nest] | None = None, /, *, num_axes: int = 1, **named: Nest) -> None:
        self._fields: dict[str, Nest] = {**fields, **named} if fields is not None else named
        self._leading = _shared_axes(self._fields, num_axes)

    # --- what is in it

    @property
    def leading(self) -> tuple[int, ...]:
        """The shape that all arrays begin with."""
        return self._leading

    @property
    def num_axes(self) -> int:
        return len(self._leading)

    def __len__(self) -> int:
        return self._leading[0]

    def keys(self) -> KeysView[str]:
        return self._fields.keys()

    def values(self) -> ValuesView[Nest]:
        return self._fields.values()

    def items(self) -> ItemsView[str, Nest]:
        return self._fields.items()

    def __contains__(self, key: object) -> bool:
        return key in self._fields

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __getattr__(self, name: str) -> Nest:
        if name.startswith("_"):  # also asked for before `_fields` is set: by copy and pickle
            raise AttributeError(name)
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(f"the batch has no field {name!r}; it has {list(self._fields)}") from None

    def __getitem__(self, index: Any) -> Any:
        """A nest by name; a row by integer (a `Batch`, or a dict if no axis is left); a `Batch` by slice, by a
        one-dimensional array of indices or by a mask."""
        if isinstance(index, str):
            try:
                return self._fields[index]
            except KeyError:
                raise KeyError(f"the batch has no field {index!r}; it has {list(self._fields)}") from None
        if isinstance(index, int | np.integer):
            if not -len(self) <= index < len(self):
                raise IndexError(f"row {index} of a batch of {len(self)}")
            row = nests.take(self._fields, int(index))
            return Batch(row, num_axes=self.num_axes - 1) if self.num_axes > 1 else row
        if not isinstance(index, slice) and (isinstance(index, tuple) or np.ndim(index) != 1):
            raise DataError(f"a batch takes a name, a row, a slice or a list of rows, not {index!r}")
        return Batch(nests.take(self._fields, index), num_axes=self.num_axes)

    def __repr__(self) -> str:
        fields = ", ".join(f"{path}: {_brief(leaf)}" for path, leaf in _leaves(self._fields))
        return f"Batch({fields}; leading {self._leading})"

    # --- other batches of it

    def map(self, fn: Callable[[Any], Any]) -> Batch:
        """`fn` at every leaf but `None`; it must keep the leading axes."""
        mapped = nests.map(lambda leaf: None if leaf is None else fn(leaf), self._fields)
        return Batch(mapped, num_axes=self.num_axes)

    def replace(self, **named: Nest) -> Batch:
        """With these fields added or in place of others."""
        return Batch({**self._fields, **named}, num_axes=self.num_axes)

    def split(self, num_or_sizes: int | Sequence[int], axis: int = 0) -> list[Batch]:
        """Parts along a leading axis: so many equal ones, or ones of these sizes. Views."""
        self._check_leading(axis)
        return [Batch(part, num_axes=self.num_axes) for part in nests.split(self._fields, num_or_sizes, axis)]

    def minibatches(
        self, size: int, *, rng: np.random.Generator | None = None, drop_last: bool = False
    ) -> Iterator[Batch]:
        """All rows once, `size` at a time: shuffled copies if there is an `rng`, views in order if not."""
        if size < 1:
            raise DataError(f"a minibatch of {size} rows: at least 1 is needed")
        order = rng.permutation(len(self)) if rng is not None else None
        end = len(self) - len(self) % size if drop_last else len(self)
        for start in range(0, end, size):
            rows = slice(start, start + size)
            yield self[rows if order is None else order[rows]]

    @staticmethod
    def stack(batches: Sequence[Batch], axis: int = 0) -> Batch:
        """One batch with one leading axis more, at `axis`."""
        first = _first(batches, "stack")
        if not 0 <= axis <= first.num_axes:
            raise DataError(f"axis {axis} is not among the leading axes of the stack")
        stacked = nests.stack([batch._fields for batch in batches], axis)
        return Batch(stacked, num_axes=first.num_axes + 1)

    @staticmethod
    def concat(batches: Sequence[Batch], axis: int = 0) -> Batch:
        """One batch with the rows of all, along a leading axis."""
        first = _first(batches, "concatenate")
        first._check_leading(axis)
        return Batch(nests.concat([batch._fields for batch in batches], axis), num_axes=first.num_axes)

    def _check_leading(self, axis: int) -> None:
        if not 0 <= axis < self.num_axes:
            raise DataError(f"axis {axis} is not one of the {self.num_axes} leading axes")

    # --- torch

    def to_torch(self, device: Any = None) -> Batch:
        """The same batch of tensors, on `device` (default: the CPU).

        On the CPU tensors share the arrays' memory, except where torch cannot: read-only arrays, negative strides
        and foreign byte orders are copied. Raises `SpecError` for a dtype that torch does not have.
        """
        torch = load_torch()

        def convert(path: str, leaf: Any) -> Any:
            if leaf is None:
                return None
            try:
                return torch.from_numpy(_torch_ready(np.asarray(leaf))).to(device)
            except TypeError as error:
                raise SpecError(str(error), path=path) from None

        return Batch(nests.map_with_path(convert, self._fields), num_axes=self.num_axes)

    @staticmethod
    def from_torch(fields: Batch | Mapping[str, Nest], *, num_axes: int = 1) -> Batch:
        """A batch of arrays from a batch (or mapping) of tensors; shares memory with tensors on the CPU."""
        torch = load_torch()
        if isinstance(fields, Batch):
            num_axes = fields.num_axes

        def convert(path: str, leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            try:
                return leaf.detach().cpu().resolve_conj().resolve_neg().numpy()
            except TypeError as error:
                raise SpecError(f"{error}; convert the tensor first", path=path) from None

        return Batch(nests.map_with_path(convert, dict(fields)), num_axes=num_axes)


def _shared_axes(fields: dict[str, Nest], num_axes: int) -> tuple[int, ...]:
    """The leading shape of all leaves. Raises `SpecError` naming the first that differs."""
    if num_axes < 1:
        raise DataError(f"a batch has at least one leading axis, not {num_axes}")
    for name in fields:
        if type(name) is not str:
            raise DataError(f"a batch's names are strings, not {name!r}")
    leading: tuple[int, ...] | None = None
    for leaf in nests.leaves(fields):
        if leaf is None:
            continue
        shape = getattr(leaf, "shape", ())[:num_axes]
        if leading is None and len(shape) == num_axes:
            leading = shape
        elif shape != leading:
            path = next(path for path, other in _leaves(fields) if other is leaf)
            raise SpecError(
                f"the leading axes of {_brief(leaf)} are not {leading or f'{num_axes} axes'}, as a batch's must be",
                path=path,
            )
    if leading is None:
        raise DataError("a batch needs at least one array, or its number of rows is unknown")
    return leading


def _leaves(fields: dict[str, Nest]) -> list[tuple[str, Any]]:
    return list(zip(nests.paths(fields), nests.leaves(fields), strict=True))


def _first(batches: Sequence[Batch], verb: str) -> Batch:
    if not batches:
        raise DataError(f"cannot {verb} zero batches: their fields are unknown")
    return batches[0]


def _torch_ready(array: NDArray[Any]) -> NDArray[Any]:
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        return array.copy()
    return array


def load_torch() -> Any:
    """The library. Raises `MissingExtra` if it is not installed."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", extra="torch") from None
    return torch


def _brief(leaf: Any) -> str:
    shape = getattr(leaf, "shape", None)
    return type(leaf).__name__ if shape is None else f"{leaf.dtype}{list(shape)}"
