"""What a model pool is: every version of every model, until somebody removes it.

    pool = open_pool("trials/league/models")            # or redis://HOST:PORT, with a prefix
    pool.put("main", policy.weights())                  # version 0; then 1, 2, …
    version, weights = pool.get("main")                 # the newest
    number = pool.at_or_before("main", 12)              # as `clone(step)` of the self-play recipes
    pool.remove("main", 0)

`ludus.testing.model_pools.ModelPoolConformance` has the contract as tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from ludus import errors
from ludus.models.versions.changes import NEWEST, Changes
from ludus.models.versions.file import Version

__all__ = ["NEWEST", "ModelPool", "Weights", "is_redis", "open_pool", "refuse_newest"]

Weights = dict[str, NDArray[Any]]


class ModelPool(Protocol):
    """Any number of processes may use one pool at once; threads may share one object.

    A version is whole or not there, whatever dies while it is put; it never changes, and damage is noticed when it is
    read. A name that cannot be a model's raises `DataError`. Where the pool is a server, every call has a deadline and
    raises `Unreachable` after it.
    """

    look_every_s: float
    """How often a subscriber looks for new versions here."""

    def put(self, model: str, weights: Mapping[str, NDArray[Any]], *, number: int | None = None) -> Version:
        """Make a version: `number`, or the one after the newest, which no other process gets.

        The same weights under the same number are there already, which is fine. Other weights raise `DataError`; a
        pool that is full raises `Overloaded` or `OSError`, and what was there stays.
        """
        ...

    def get(self, model: str, number: int = NEWEST) -> tuple[Version, Weights]:
        """A version and its arrays, read-only. They stay valid when it is removed or the pool is closed.

        Where the newest is asked for and damaged, that is set aside, and the one before it is given with a warning.
        Raises `DataError` if the version is not there, was removed while it was read, or is damaged.
        """
        ...

    def at_or_before(self, model: str, step: int = NEWEST) -> int:
        """The newest number at or before `step`; -1: the newest. Raises `DataError` if there is none."""
        ...

    def latest(self, model: str) -> int | None:
        """The newest number; `None` before the first. The cheapest question: ask it often."""
        ...

    def numbers(self, model: str) -> list[int]:
        """Of the versions that are there, oldest first."""
        ...

    def newest(self, model: str, most: int) -> list[Version]:
        """What is known of the newest versions, at most so many, the newest first. Their arrays are not read."""
        ...

    def models(self) -> list[str]:
        """The models of which anything was ever put."""
        ...

    def remove(self, model: str, number: int) -> None:
        """Remove a version; who reads it keeps what it has. Removing nothing is not an error.

        Raises `DataError` for the newest, whose number would come back with other weights.
        """
        ...

    def num_published(self, model: str) -> int:
        """How many versions were put in all."""
        ...

    def num_rewinds(self, model: str) -> int:
        """How often the newest was taken back, because it was damaged or removed by a rewind."""
        ...

    def changes(self, model: str) -> Changes:
        """Counts and numbers of one moment, for subscribers."""
        ...

    def attend(self, model: str) -> None:
        """Say that somebody subscribes: a pool that removes old versions by itself keeps more of them for a while."""
        ...

    def close(self) -> None:
        """Close files and connections. A later call opens them again."""
        ...


def refuse_newest(model: str, number: int, newest: int | None) -> None:
    """Raise `DataError` if this is the newest version, which stays."""
    if newest is not None and number == newest:
        raise errors.DataError(
            f"version {number} of {model!r} is the newest and was not removed: numbers go on from it. "
            "Put another first."
        )


def is_redis(where: str | Path) -> bool:
    return isinstance(where, str) and where.startswith(("redis:", "rediss:"))


def open_pool(where: str | Path, *, prefix: str = "default", create: bool = True, timeout_s: float = 10.0) -> ModelPool:
    """The pool in a folder, or in Redis (`redis://HOST:PORT`; the other arguments are those of `RedisPool`)."""
    if isinstance(where, str) and is_redis(where):
        from ludus.models.pools.redis_pool import RedisPool  # brings the library

        return RedisPool(where, prefix=prefix, create=create, timeout_s=timeout_s)
    from ludus.models.pools.folder_pool import FolderPool

    return FolderPool(where)
