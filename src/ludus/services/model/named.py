"""A named model as one process sees it: its store, its holds, and what runs it, shared by all who speak of it.

Actors are made for each session, and each may say `RemoteModel("policy")`: the first makes this, the others find it.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ludus.services.model.client import ModelClient
from ludus.services.model.definition import Definition, ModelFolder, ModelSettings
from ludus.services.model.host import ModelHost
from ludus.services.model.host_thread import HostThread
from ludus.services.model.rows import Layouts
from ludus.services.model.torch_weights import as_arrays
from ludus.services.model.versions import Holds
from ludus.services.weights.store import Version, VersionStore
from ludus.workers.solver import Solver

__all__ = ["CHECKPOINT", "NamedModel", "find"]

CHECKPOINT = "checkpoint-"
_models: dict[tuple[str, str], NamedModel] = {}
_lock = threading.Lock()


def find(folder: Path, name: str) -> NamedModel:
    """The one of this process. Its definition must be there."""
    key = str(folder), name
    with _lock:
        found = _models.get(key)
        if found is None or found.is_closed:
            found = _models[key] = NamedModel(ModelFolder(folder, name))
        return found


class NamedModel:
    """Safe to share between threads."""

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self.name = folder.name
        self.settings = folder.settings()
        self.store = VersionStore(folder.folder, keep=self.settings.keep)
        self.holds = Holds(self.store, self.name)
        self.is_closed = False
        self._lock = threading.Lock()
        self._hosts: dict[ModelSettings, HostThread] = {}
        self._clients: dict[tuple[ModelSettings, int], ModelClient] = {}
        self._last_checkpoint: tuple[int, float] | None = None

    @functools.cached_property
    def definition(self) -> Definition:
        """To look at: `folder.definition()` gives a copy of one's own."""
        return self.folder.definition()

    def reload_settings(self) -> None:
        self.settings = self.folder.settings()
        self.store.keep = self.settings.keep

    # -- running --------------------------------------------------------------------------------------------------

    def host(self, settings: ModelSettings) -> HostThread:
        """The thread that runs it here, started if need be."""
        with self._lock:
            thread = self._hosts.get(settings)
            if thread is None:
                lanes = settings.num_threads
                host = ModelHost(
                    self.folder, definition=self.folder.definition(), settings=settings, holds=self.holds, lanes=lanes
                )
                thread = self._hosts[settings] = HostThread(host, lanes)
                thread.start()
            return thread

    def client(
        self, settings: ModelSettings, open_workers: Callable[[], Solver], *, trial: object, node: str, timeout_s: float
    ) -> ModelClient:
        """What calls its workers from here, started if need be; a trial that was closed and begun again has its own."""
        with self._lock:
            key = settings, id(trial)
            client = self._clients.get(key)
            if client is None or client.is_closed:
                client = self._clients[key] = ModelClient(
                    open_workers,  # holds the trial, so that no other can have its id
                    node,
                    Layouts(self.name, self.definition.layout),
                    num_workers=settings.num_workers,
                    max_batch=settings.max_batch,
                    timeout_s=timeout_s,
                )
                client.start()
            return client

    def close(self) -> None:
        """Stop what runs here; sessions that are live lose their holds."""
        with self._lock:
            self.is_closed = True
            running: list[HostThread | ModelClient] = [*self._hosts.values(), *self._clients.values()]
            self._hosts.clear()
            self._clients.clear()
        for each in running:
            each.close()
        self.holds.close()

    # -- publishing -----------------------------------------------------------------------------------------------

    def publish(self, weights: Mapping[str, NDArray[Any]], *, tag: str | None) -> Version:
        """The next version; `tag` and the tag of a checkpoint, if one is due, keep it."""
        self.folder.check(as_arrays(self.definition.module), weights)
        if self._last_checkpoint is None:
            self._last_checkpoint = self._find_checkpoint()
        version = self.store.publish(self.name, weights, number=None)
        tags = [tag] if tag is not None else []
        if self._is_checkpoint_due(version):
            self._last_checkpoint = version.number, version.created
            tags.append(f"{CHECKPOINT}{version.number}")
        for each in tags:
            self.store.tag(self.name, each, version.number)
        return version

    def _is_checkpoint_due(self, version: Version) -> bool:
        assert self._last_checkpoint is not None, "looked up before the first publish"
        number, created = self._last_checkpoint
        seconds, steps = self.settings.checkpoint_seconds, self.settings.checkpoint_steps
        return (seconds is not None and version.created - created >= seconds) or (
            steps is not None and version.number - number >= steps
        )

    def _find_checkpoint(self) -> tuple[int, float]:
        """The newest one's number and time; before the first, the oldest version counts."""
        numbers = [number for tag, number in self.store.tags(self.name).items() if tag.startswith(CHECKPOINT)]
        versions = {version.number: version.created for version in self.store.versions(self.name)}
        number = max(numbers) if numbers else min(versions, default=0)
        return number, versions.get(number, time.time())


def _forget_after_fork() -> None:
    """A child has none of its parent's threads."""
    global _lock
    _lock = threading.Lock()
    _models.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
