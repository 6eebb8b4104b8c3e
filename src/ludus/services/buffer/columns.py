"""Columns: one array for each field of many items, in memory or as mapped files.

    columns = Columns({"obs": ArraySpec((4,), np.float32), "reward": ArraySpec((), np.float32)}, num_slots=100_000)
    columns.write(key, {"obs": obs, "reward": rewards})       # items of consecutive keys, around the end of the ring
    batch = columns.take(["obs", "reward"], slots)            # copies

With a `folder`, each column is a file there, and `columns.json` says what they are. The files have their full size from
the start, so a full disk is noticed when the folder is made. What a killed process wrote is there for the next one.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus import files
from ludus.data.spec import ArraySpec
from ludus.errors import DataError

__all__ = ["ColumnSpec", "Columns"]

_DESCRIPTION = "columns.json"
_FORMAT = 1


class ColumnSpec(Protocol):
    """`ArraySpec`s and arrays are."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...


class Columns:
    """`spec` is of one item. Slot `key % num_slots` has the item of a key. Arrays are zeroed at first.

    Raises `DataError` if `folder` has columns already, or if there is no room for them.
    """

    def __init__(
        self,
        spec: Mapping[str, ColumnSpec],
        num_slots: int,
        *,
        folder: Path | str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.spec = {name: ArraySpec(leaf.shape, leaf.dtype) for name, leaf in spec.items()}
        self.num_slots = num_slots
        self.folder = None if folder is None else Path(folder)
        self.extra = dict(extra or {})
        if num_slots < 1:
            raise DataError(f"num_slots={num_slots}: columns have at least 1 slot")
        if self.folder is None:
            self.arrays = {name: leaf.allocate((num_slots,)) for name, leaf in self.spec.items()}
        else:
            self._create(self.folder)
            self.arrays = self._map(self.folder, readonly=False)

    @classmethod
    def open(cls, folder: Path | str, *, readonly: bool = False) -> Columns:
        """The columns that an earlier process made, or another has now. Raises `DataError` if they are not whole."""
        folder = Path(folder)
        columns = cls.__new__(cls)
        columns.folder = folder
        try:
            description = json.loads((folder / _DESCRIPTION).read_bytes())
            if description["format"] != _FORMAT:
                raise DataError(
                    f"{folder} has columns of format {description['format']}, this version reads {_FORMAT}. "
                    f"Nothing was opened; use the version that wrote them, or another folder"
                )
            columns.num_slots = int(description["num_slots"])
            columns.extra = dict(description["extra"])
            columns.spec = {
                str(name): ArraySpec(shape, np.dtype(dtype)) for name, (dtype, shape) in description["columns"].items()
            }
        except FileNotFoundError:
            raise DataError(f"{folder} has no {_DESCRIPTION}, so there are no columns; nothing was opened") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{folder / _DESCRIPTION} is damaged ({error!r}); nothing was opened") from None
        columns.arrays = columns._map(folder, readonly=readonly)
        return columns

    # -- items

    def write(self, start_key: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Items of the keys from `start_key` on, one for each row of the arrays; at most `num_slots`."""
        start = start_key % self.num_slots
        for name, rows in arrays.items():
            column = self.arrays[name]
            end = start + len(rows)
            if end <= self.num_slots:
                column[start:end] = rows
            else:
                part = self.num_slots - start
                column[start:] = rows[:part]
                column[: end - self.num_slots] = rows[part:]

    def take(
        self, names: Sequence[str], slots: NDArray[np.int64], *, out: Mapping[str, NDArray[Any]] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Copies of the items in these slots, which are within `num_slots`. Into `out`, if given: no new pages."""
        if out is None:
            return {name: self.arrays[name].take(slots, 0) for name in names}
        return {name: self.arrays[name].take(slots, 0, out=out[name], mode="clip") for name in names}

    def expect_own(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Raises `DataError` unless these are rows of columns like these: `write` would cast and broadcast others."""
        there = {name: f"{rows.dtype}{list(rows.shape[1:])}" for name, rows in saved.items()}
        own = {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in self.spec.items()}
        if there != own:
            raise DataError(f"the saved columns are {there}, not {own}; nothing was restored")

    # -- files

    @property
    def num_bytes(self) -> int:
        return sum(self._num_bytes(leaf) for leaf in self.spec.values())

    def _num_bytes(self, leaf: ArraySpec) -> int:
        return self.num_slots * leaf.dtype.itemsize * int(np.prod(leaf.shape, dtype=np.int64))

    def _create(self, folder: Path) -> None:
        files.make_folder(folder)
        if (folder / _DESCRIPTION).exists():
            raise DataError(f"{folder} has columns already; they were not touched. Open them, or use another folder")
        for number, (name, leaf) in enumerate(self.spec.items()):
            if leaf.dtype.hasobject:
                raise DataError(f"the column {name!r} is of objects, which cannot be mapped")
            self._allocate(folder / _file_name(number, name), self._num_bytes(leaf))
        description = {
            "format": _FORMAT,
            "num_slots": self.num_slots,
            "columns": {name: [leaf.dtype.str, list(leaf.shape)] for name, leaf in self.spec.items()},
            "extra": self.extra,
        }
        files.replace_json(folder / _DESCRIPTION, description)

    def _allocate(self, path: Path, num_bytes: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, files.PUBLIC)
        try:
            os.posix_fallocate(fd, 0, max(1, num_bytes))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise
            path.unlink(missing_ok=True)
            raise DataError(
                f"{path.parent} has no room for columns of {self.num_bytes / 1e6:.0f} MB ({error.strerror}); "
                f"nothing was stored. Use fewer slots, or another folder"
            ) from error
        finally:
            os.close(fd)

    def _map(self, folder: Path, *, readonly: bool) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {}
        for number, (name, leaf) in enumerate(self.spec.items()):
            path, shape = folder / _file_name(number, name), (self.num_slots, *leaf.shape)
            try:
                num_bytes = path.stat().st_size
            except FileNotFoundError:
                raise DataError(f"{path} is missing, so the columns are not whole; nothing was opened") from None
            if num_bytes != max(1, self._num_bytes(leaf)):
                raise DataError(f"{path} has {num_bytes} bytes instead of {self._num_bytes(leaf)}; nothing was opened")
            if 0 in shape:
                arrays[name] = np.zeros(shape, leaf.dtype)
                continue
            mapped = np.memmap(path, leaf.dtype, mode="r" if readonly else "r+", shape=shape)
            arrays[name] = mapped.view(np.ndarray)  # without memmap's own work in every operation
        return arrays


def _file_name(number: int, name: str) -> str:
    """One for each column, whatever is in its name."""
    return f"{number:03d}-{re.sub(r'[^A-Za-z0-9_]+', '-', name)[:64]}.col"
