"""A model pool in a folder: each version is one file, mapped into memory by all its readers on a host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ludus.models.pools.pool import NEWEST, Weights, refuse_newest
from ludus.models.versions.changes import Changes
from ludus.models.versions.store import LATEST, Version, VersionStore

__all__ = ["FolderPool"]

_ALL = 10**9


class FolderPool:
    """A `ModelPool` over a `VersionStore` that removes nothing by itself.

    `durable`: sync each version to the disk. Without it versions survive every kill, and a power cut only if something
    else has their weights, as a checkpoint does.
    """

    look_every_s = 0.005

    def __init__(self, folder: Path | str, *, durable: bool = False) -> None:
        self.store = VersionStore(folder, keep=_ALL, durable=durable)

    def put(self, model: str, weights: Mapping[str, NDArray[Any]], *, number: int | None = None) -> Version:
        return self.store.publish(model, weights, number=number)

    def get(self, model: str, number: int = NEWEST) -> tuple[Version, Weights]:
        return self.store.get(model, LATEST if number == NEWEST else number)

    def at_or_before(self, model: str, step: int = NEWEST) -> int:
        return self.store.at_or_before(model, step)

    def latest(self, model: str) -> int | None:
        return self.store.latest(model)

    def numbers(self, model: str) -> list[int]:
        return self.store.numbers(model)

    def newest(self, model: str, most: int) -> list[Version]:
        return self.store.versions(model, most=most)[::-1]

    def models(self) -> list[str]:
        return self.store.models()

    def remove(self, model: str, number: int) -> None:
        refuse_newest(model, number, self.store.latest(model))
        self.store.discard(model, number)

    def num_published(self, model: str) -> int:
        return self.store.num_published(model)

    def num_rewinds(self, model: str) -> int:
        return self.store.num_rewinds(model)

    def changes(self, model: str) -> Changes:
        return self.store.changes(model)

    def attend(self, model: str) -> None:
        """Nothing to do: nothing is removed here unless somebody asks."""

    def close(self) -> None:
        self.store.close()

    def __repr__(self) -> str:
        return f"FolderPool({str(self.store.folder)!r})"
