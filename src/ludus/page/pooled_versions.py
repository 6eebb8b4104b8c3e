"""The versions of a league whose pool is in Redis, for pages: kept for a moment, so that a server that is gone holds up
a page once, and several browsers cost as much as one.

found = site.part(PooledVersions).look(folder)         # None: the trial has its versions in its folder
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from pathlib import Path

from ludus.clock import SYSTEM, Clock
from ludus.errors import LudusError
from ludus.models.pools import place as places
from ludus.models.pools.place import Place
from ludus.models.versions.file import Version

__all__ = ["PoolLook", "PooledModel", "PooledVersions"]

_KEPT_S = 1.0
_FAILED_KEPT_S = 10.0
_ANSWER_S = 2.0
_MOST_TRIALS = 64
_MOST_MODELS = 16
_MOST_VERSIONS = 12


@dataclass(frozen=True, kw_only=True)
class PooledModel:
    name: str
    num: int  # versions, of which the newest are here
    newest: list[Version]


@dataclass(frozen=True, kw_only=True)
class PoolLook:
    """`problem`: why there is nothing; empty if there is none."""

    where: str
    models: tuple[PooledModel, ...] = ()
    problem: str = ""


class PooledVersions:
    """A part of the site. Safe from any thread; one asks at a time."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[float, PoolLook]] = {}  # until when it is good

    def look(self, folder: Path) -> PoolLook | None:
        """Raises `ConfigError` if the folder says where they are, and cannot be read."""
        place = places.find_place(folder)
        if place is None:
            return None
        with self._lock:
            until, found = self._known.get(folder, (0.0, None))
            if found is not None and self._clock.now() < until:
                return found
            try:
                found = _look(folder, place)
            except (LudusError, OSError) as error:
                found = PoolLook(where=str(place), problem=str(error))
            until = self._clock.now() + (_FAILED_KEPT_S if found.problem else _KEPT_S)
            self._known.pop(folder, None)
            self._known[folder] = until, found
            if len(self._known) > _MOST_TRIALS:
                del self._known[next(iter(self._known))]
            return found


def _look(folder: Path, place: Place) -> PoolLook:
    with contextlib.closing(places.open_pool_of(folder, timeout_s=_ANSWER_S)) as pool:
        models = [
            PooledModel(name=name, num=len(pool.numbers(name)), newest=pool.newest(name, _MOST_VERSIONS))
            for name in pool.models()[:_MOST_MODELS]
        ]
    return PoolLook(where=str(place), models=tuple(models))
