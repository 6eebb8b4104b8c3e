"""The weights as a service: for publishers and readers on other hosts than the folder's.

Processes on the same host use the folder itself (`client.py` does so by itself); no bytes of theirs pass through here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ludus import files
from ludus.data.nest import Nest
from ludus.models.versions.store import LATEST, VersionStore
from ludus.rpc import deadline
from ludus.rpc.address import host_id
from ludus.rpc.deferred import Deferred
from ludus.workers.register import register

__all__ = ["WeightsService", "WeightsStats"]

_LOOK_EVERY_S = 0.005


@dataclass(frozen=True, kw_only=True)
class WeightsStats:
    num_published: int  # by calls; what was written straight into the folder is not counted
    num_pulled: int  # calls that were sent weights
    num_spared: int  # calls that had them already
    num_waiting: int  # calls that wait for a newer version


@dataclass(frozen=True, kw_only=True)
class _Wait:
    model: str
    number: int | None
    until: float
    answer: Deferred


class WeightsService:
    """One for each folder. `keep`: how many of the newest versions of each model stay; those with a tag stay too.

    `durable`: see `VersionStore`.
    """

    def __init__(self, folder: Path | str, keep: int = 4, *, durable: bool = True) -> None:
        self.store = VersionStore(Path(folder).absolute(), keep=keep, durable=durable)
        self._changed = threading.Condition()
        self._waits: list[_Wait] = []
        self._watcher: threading.Thread | None = None
        self._is_closed = False
        self._num_published = self._num_pulled = self._num_spared = 0

    # -- commands -----------------------------------------------------------------------------------------------

    @register
    def where(self) -> dict[str, Any]:
        """The folder, and the host that it is on."""
        files.make_folder(self.store.folder)
        return {"host": host_id(), "folder": str(self.store.folder), "keep": self.store.keep}

    @register
    def publish(
        self, model: str, weights: Mapping[str, NDArray[Any]], number: int, digest: str | None = None
    ) -> dict[str, Nest]:
        """`VersionStore.publish`."""
        version = self.store.publish(model, weights, number=number, digest=digest)
        self._num_published += 1
        self._answer_waits()
        return version.to_nest()

    @register
    def pull(self, model: str, version: int | str = LATEST, have: str | None = None) -> dict[str, Nest]:
        """`version` and its `weights`, which are `None` if the caller has those of that digest."""
        found, weights = self.store.get(model, version)
        if have == found.digest:
            self._num_spared += 1
            return {"version": found.to_nest(), "weights": None}
        self._num_pulled += 1
        return {"version": found.to_nest(), "weights": weights}

    @register
    def latest(self, model: str) -> list[int | None]:
        """The newest number (`None` before the first), how often the model was rewound, how many were published."""
        return [self.store.latest(model), self.store.num_rewinds(model), self.store.num_published(model)]

    @register
    def changes(self, model: str) -> dict[str, Nest]:
        """`VersionStore.changes`."""
        return asdict(self.store.changes(model))

    @register
    def attend(self, model: str) -> None:
        """`VersionStore.attend`."""
        self.store.attend(model)

    @register
    def wait_newer(self, model: str, number: int | None, timeout_s: float = 10.0) -> Deferred | list[int | None]:
        """As `latest`, answered as soon as the newest is another than `number`, at the latest after `timeout_s`."""
        if self._is_closed or self.store.latest(model) != number:
            return self.latest(model)
        until = time.monotonic() + timeout_s
        caller_leaves = deadline.current.get()
        if caller_leaves is not None:
            until = min(until, caller_leaves - 0.05)
        wait = _Wait(model=model, number=number, until=until, answer=Deferred())
        with self._changed:
            self._waits.append(wait)
            self._changed.notify_all()
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, daemon=True, name="weights-watcher")
                self._watcher.start()
        return wait.answer

    @register
    def tag(self, model: str, name: str, number: int) -> None:
        """`VersionStore.tag`."""
        self.store.tag(model, name, number)

    @register
    def untag(self, model: str, name: str) -> None:
        """`VersionStore.untag`."""
        self.store.untag(model, name)

    @register
    def tags(self, model: str) -> dict[str, int]:
        """`VersionStore.tags`."""
        return self.store.tags(model)

    @register
    def versions(self, model: str) -> list[dict[str, Nest]]:
        """`VersionStore.versions`."""
        return [version.to_nest() for version in self.store.versions(model)]

    @register
    def rewind(self, model: str, number: int | None) -> int:
        """`VersionStore.rewind`."""
        goes_on_with = self.store.rewind(model, number)
        self._answer_waits()
        return goes_on_with

    @register
    def statistics(self) -> dict[str, int]:
        """`WeightsStats` by name."""
        return asdict(
            WeightsStats(
                num_published=self._num_published,
                num_pulled=self._num_pulled,
                num_spared=self._num_spared,
                num_waiting=len(self._waits),
            )
        )

    def stats(self) -> dict[str, Any]:
        """What `ludus ctl stats` shows."""
        return {**self.statistics(), "latest": {model: self.store.latest(model) for model in self.store.models()}}

    # -- those who wait -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look, while anybody waits, for what was published straight into the folder and for whose time is up."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waits or self._is_closed)
                if self._is_closed:
                    return
                self._changed.wait(_LOOK_EVERY_S)
            self._answer_waits()

    def _answer_waits(self, *, all_of_them: bool = False) -> None:
        now = time.monotonic()
        with self._changed:
            due = [w for w in self._waits if all_of_them or now >= w.until or self.store.latest(w.model) != w.number]
            self._waits = [w for w in self._waits if w not in due]
        for wait in due:
            wait.answer.set_result(self.latest(wait.model))

    def close(self) -> None:
        """Answer everybody who waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._answer_waits(all_of_them=True)
        if self._watcher is not None:
            self._watcher.join(1.0)
