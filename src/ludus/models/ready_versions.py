"""The versions of one model that are ready to run, and who holds them."""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from ludus import errors
from ludus.models import verify
from ludus.models.backends import Backend
from ludus.models.torch_weights import difference
from ludus.models.versions.store import LATEST, Hold, Version, VersionStore

__all__ = ["Holds", "Ready", "ReadyVersions", "VersionSource"]

_log = logging.getLogger(__name__)

Ready = tuple[Backend, Any]
"""A backend, and a version's handle there."""


class VersionSource(Protocol):
    """Where weights come from: `VersionStore`, or `FarVersions` on another host."""

    def num_rewinds(self, model: str) -> int: ...

    def resolve(self, model: str, version: int | str = LATEST) -> int: ...

    def get(
        self, model: str, version: int | str = LATEST, *, private: bool = False
    ) -> tuple[Version, dict[str, NDArray[Any]]]: ...

    def close(self) -> None: ...


class Holds:
    """Counted holds: a version that several need is held once in the store. Safe to share between threads."""

    def __init__(self, store: VersionStore, model: str) -> None:
        self._store = store
        self._model = model
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()
        self._held: dict[int, Hold] = {}
        self._released: deque[int] = deque()

    def hold(self, version: int | str) -> int:
        """Keep a version from retention until `release`; its number. Raises `DataError` if it is not there."""
        with self._lock:
            self._release_all()
            number = self._store.resolve(self._model, version)
            if number not in self._held:
                hold = self._store.hold(self._model, version)
                number = hold.number
                if number in self._held:  # "latest" moved on to one that is held
                    hold.close()
                else:
                    self._held[number] = hold
            self._counts[number] += 1
            return number

    def release(self, number: int) -> None:
        """Undo one `hold`. After `close` there is nothing to undo."""
        with self._lock:
            self._released.append(number)
            self._release_all()

    def release_soon(self, number: int) -> None:
        """`release` for the garbage collector, which may run in the middle of anything here: it never waits."""
        self._released.append(number)
        if self._lock.acquire(blocking=False):
            try:
                self._release_all()
            finally:
                self._lock.release()

    def _release_all(self) -> None:
        while self._released:
            number = self._released.popleft()
            if number not in self._held:
                continue
            self._counts[number] -= 1
            if self._counts[number] <= 0:
                del self._counts[number]
                self._held.pop(number).close()

    def is_held(self, number: int) -> bool:
        return number in self._held

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(self._held)

    def close(self) -> None:
        with self._lock:
            held, self._held = self._held, {}
            self._counts.clear()
        for hold in held.values():
            hold.close()

    def abandon(self) -> None:
        """In a child that was forked: they are the parent's, which lets go of them when it likes."""
        held, self._held = self._held, {}
        self._lock = threading.Lock()
        for hold in held.values():
            hold.close()


class ReadyVersions:
    """Loads on demand. Of those that nobody holds, the `keep` that were asked for last stay ready.

    A version that its backend cannot load, or runs too far from eager, is run by eager, and the log says so. One of
    other names and shapes than `weights` is refused. Used by one thread, except for `make`.
    """

    def __init__(
        self,
        store: VersionSource,
        model: str,
        backend: Backend,
        eager: Backend,
        holds: Holds | None = None,
        *,
        weights: Mapping[str, NDArray[Any]],
        tolerance: float,
        keep: int = 8,
        calls: Callable[[], Sequence[verify.Call]],
    ) -> None:
        self._store = store
        self._model = model
        self._backend = backend
        self._eager = eager
        self._is_held = holds.is_held if holds is not None else lambda _number: False
        self._weights = weights
        self._tolerance = tolerance
        self._keep = keep
        self._calls = calls
        self._ready: OrderedDict[int, Ready] = OrderedDict()
        self._num_rewinds = store.num_rewinds(model)
        self.num_loads = 0
        self.num_refused = 0  # versions that eager runs because their backend could not, or was too far from it

    @property
    def numbers(self) -> tuple[int, ...]:
        """Those that are ready, the last asked for last."""
        return tuple(self._ready)

    @property
    def loads_slowly(self) -> bool:
        return self._backend.loads_slowly

    def find(self, number: int) -> Ready | None:
        """What runs a version, and its handle there; `None` if it is not ready."""
        num_rewinds = self._store.num_rewinds(self._model)
        if num_rewinds != self._num_rewinds:  # numbers may stand for other weights now
            self._ready.clear()
            self._num_rewinds = num_rewinds
        known = self._ready.get(number)
        if known is not None:
            self._ready.move_to_end(number)
        return known

    def get(self, number: int) -> Ready:
        """The same, loaded if need be. Raises `DataError` if it is not in the store (any more)."""
        known = self.find(number)
        if known is None:
            known = self.make(number)
            self.add(number, known)
        return known

    def add(self, number: int, ready: Ready) -> None:
        """Keep what `make` made."""
        self._ready[number] = ready
        self.num_loads += 1
        self.num_refused += ready[0] is not self._backend
        self._make_room(number)

    def make(self, number: int) -> Ready:
        """Load a version; if its backend `loads_slowly`, any thread may. Raises `DataError` if it is not there."""
        _version, weights = self._store.get(self._model, number, private=True)
        if other := difference(self._weights, weights):
            raise errors.DataError(f"version {number} of {self._model!r} has the weights of another network: {other}")
        backend = self._backend
        if backend is self._eager:
            return backend, backend.load(weights)
        try:
            handle = backend.load(weights)
        except Exception as error:
            why = verify.why_not(error)
            _log.warning("version %d of %s is run by eager, not by %s: %s", number, self._model, backend.name, why)
            return self._eager, self._eager.load(weights)
        calls = self._calls() if backend.checks_versions else ()
        if not calls:
            return backend, handle
        eager = self._eager.load(weights)
        report = verify.compare((self._eager, eager), (backend, handle), calls, tolerance=self._tolerance)
        if report.is_verified:
            return backend, handle
        _log.warning("version %d of %s is run by eager, not by %s", number, self._model, report)
        return self._eager, eager

    def _make_room(self, number: int) -> None:
        free = [each for each in self._ready if each != number and not self._is_held(each)]
        for each in free[: max(0, len(free) - self._keep + 1)]:
            del self._ready[each]
