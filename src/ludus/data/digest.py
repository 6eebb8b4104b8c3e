"""The digest of a nest: equal exactly when structure, dtypes, shapes and bytes are. What names a version of a model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ludus.data import nest as nests
from ludus.data.nest import Nest

__all__ = ["digest"]


class _Hash(Protocol):
    def update(self, content: Any, /) -> None: ...

    def hexdigest(self) -> str: ...


def digest(nest: Nest, new: Callable[[], _Hash] = hashlib.sha256) -> str:
    """In hexadecimal, over the leaves by their paths: the order of a dict's keys is of no matter.

    By SHA-256, or by the hash that `new` begins.
    """
    sha = new()
    for path, leaf in sorted(zip(nests.paths(nest), nests.leaves(nest), strict=True), key=lambda item: item[0]):
        array = np.ascontiguousarray(leaf)
        sha.update(f"{path}\0{array.dtype.str}\0{array.shape}\0".encode())
        sha.update(array.data if array.size else b"")
    return sha.hexdigest()
