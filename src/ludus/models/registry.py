"""A named model as one process sees it: its store, its holds, and what runs it, shared by all who speak of it.

Actors are made for each session, and each may say `RemoteModel("policy")`: the first makes this, the others find it.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ludus import errors
from ludus.data.rows import Layouts
from ludus.models.client import ModelClient
from ludus.models.definition import Definition, ModelFolder
from ludus.models.kernel import Kernel
from ludus.models.kernel_threads import KernelThreads
from ludus.models.ready_versions import Holds
from ludus.models.request import Inference
from ludus.models.settings import ModelSettings
from ludus.models.torch_weights import as_arrays
from ludus.models.versions.store import Version, VersionStore
from ludus.telemetry import counts
from ludus.workers.remote import Remote

__all__ = ["CHECKPOINT", "NamedModel", "find", "forget"]

CHECKPOINT = "checkpoint-"
_models: dict[tuple[str, str], NamedModel] = {}
_lock = threading.Lock()


def find(folder: Path, name: str) -> NamedModel:
    """The one of this process. Its definition must be there; if it was made again, so is this."""
    key = str(folder), name
    with _lock:
        known = _models.get(key)
        if known is not None and known.is_current:
            return known
        found = _models[key] = NamedModel(ModelFolder(folder, name))
    if known is not None:
        known.close()
    return found


def forget(folder: Path) -> None:
    """Close all models of a folder. One that is asked for later is made again."""
    with _lock:
        known = [_models.pop(key) for key in list(_models) if key[0] == str(folder)]
    for each in known:
        each.close()


class NamedModel:
    """Safe to share between threads."""

    def __init__(self, folder: ModelFolder) -> None:
        self._made = _stamp(folder.path)
        self.folder = folder
        self.name = folder.name
        self.settings = folder.settings()
        self.store = VersionStore(folder.folder, keep=self.settings.keep)
        self.holds = Holds(self.store, self.name)
        self.is_closed = False
        self._lock = threading.Lock()
        self._kernels: dict[ModelSettings, KernelThreads] = {}
        self._clients: dict[tuple[ModelSettings, int], ModelClient] = {}

    @property
    def is_current(self) -> bool:
        """Whether it is open, and of the model that is in the folder now: the folder may have been made again."""
        return not self.is_closed and self._made == _stamp(self.folder.path)

    @functools.cached_property
    def definition(self) -> Definition:
        """To look at: `folder.definition()` gives a copy of one's own."""
        return self.folder.definition()

    def reload_settings(self) -> None:
        self.settings = self.folder.settings()

    # -- running --------------------------------------------------------------------------------------------------

    def kernel(self, settings: ModelSettings) -> KernelThreads:
        """The threads that run it here, started at the first call."""
        with self._lock:
            threads = self._kernels.get(settings)
            if threads is None:
                kernel = Kernel.of(self.folder, settings=settings, holds=self.holds, lanes=settings.num_threads)
                threads = self._kernels[settings] = KernelThreads(kernel)
                threads.start()
                counts.count_here(self._count_name(settings), threads.stats)
            return threads

    def _count_name(self, settings: ModelSettings) -> str:
        """Settings of one model run apart from each other, and are counted together."""
        return f"model/{self.name}:{id(self):x}{hash(settings):x}"

    def client(
        self, settings: ModelSettings, open_workers: Callable[[], Remote], *, trial: object, node: str, timeout_s: float
    ) -> ModelClient:
        """What calls its workers from here; a trial that was closed and opened again has its own."""
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
            return client

    def close(self) -> None:
        """Stop what runs here; sessions that are live lose their holds."""
        with self._lock:
            self.is_closed = True
            running: list[Inference] = [*self._kernels.values(), *self._clients.values()]
            for settings in self._kernels:
                counts.count_here(self._count_name(settings), None)
            self._kernels.clear()
            self._clients.clear()
        for each in running:
            each.close()
        self.holds.close()

    def abandon(self) -> None:
        """In a child that was forked: what runs is the parent's, so it is closed here."""
        self.is_closed = True
        running: list[Inference] = [*self._kernels.values(), *self._clients.values()]
        for each in running:
            each.abandon()
        self._kernels, self._clients = {}, {}
        self._lock = threading.Lock()
        self.holds.abandon()

    # -- publishing -----------------------------------------------------------------------------------------------

    def publish(
        self, weights: Mapping[str, NDArray[Any]], *, tag: str | None = None, settings: ModelSettings | None = None
    ) -> Version:
        """The next version; `tag` and the tag of a checkpoint, if one is due by `settings`, keep it."""
        self.folder.check(as_arrays(self.definition.module), weights)
        settings = settings or self.settings

        def tags(version: Version) -> list[str]:
            given = [] if tag is None else [tag]
            return [*given, f"{CHECKPOINT}{version.number}"] if self._is_checkpoint_due(version, settings) else given

        return self.store.publish(self.name, weights, number=None, keep=settings.keep, tags=tags)

    def _is_checkpoint_due(self, version: Version, settings: ModelSettings) -> bool:
        """By the newest one's number and time, whichever process published it; before the first, the model's own."""
        seconds, steps = settings.checkpoint_seconds, settings.checkpoint_steps
        if seconds is None and steps is None:
            return False
        known = [number for tag, number in self.store.tags(self.name).items() if tag.startswith(CHECKPOINT)]
        if steps is not None and version.number - max(known, default=0) >= steps:
            return True
        if seconds is None:
            return False
        try:
            last = self.store.get(self.name, max(known))[0].created if known else self.folder.path.stat().st_mtime
        except errors.DataError:  # somebody removed its file, so there is none
            return True
        return version.created - last >= seconds


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What tells a file from another that had the same path before it; `None` if it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _forget_after_fork() -> None:
    """A child has none of its parent's threads."""
    global _lock
    _lock = threading.Lock()
    for each in _models.values():
        each.abandon()
    _models.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
