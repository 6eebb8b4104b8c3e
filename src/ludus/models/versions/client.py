"""Versions for their readers: straight from the folder on its own host, through a cache of the host elsewhere.

versions = connect(remote)                       # or connect(folder)
versions.publish("policy", policy.weights(), number=12)
version, arrays = versions.get("policy")         # views of one file for all processes of this host
policies = Subscription(versions, "policy")
if (newer := policies.newer(than=version.number)) is not None: ...
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from ludus import errors, files
from ludus.data.digest import digest as digest_of
from ludus.models.versions.changes import Changes, at_or_before
from ludus.models.versions.store import LATEST, Version, VersionStore, check_model
from ludus.rpc.address import host_id, runtime_folder
from ludus.rpc.call import Pending

__all__ = ["FarVersions", "Subscription", "Weights", "connect"]

_log = logging.getLogger(__name__)
_SHARED_MEMORY = Path("/dev/shm")
_LONG_POLL_S = 10.0
_RETRY_AFTER_S = 0.2
_PATIENCE_S = 60.0
_STALE_AFTER_S = 24 * 3600.0
_MAX_RACES = 100

Weights = dict[str, NDArray[Any]]


class _Remote(Protocol):
    """What a handle becomes: `ludus.workers.remote.Remote`."""

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending: ...


def connect(
    source: _Remote | Path | str, *, cache: Path | str | None = None, keep: int = 4, is_far: bool | None = None
) -> VersionStore | FarVersions:
    """The versions in a folder on this host, or of a `WeightsService`. One for each process; threads may share it.

    If the service's folder is on this host, it is used directly, and the service's process is not called again.
    Otherwise versions are fetched, once for the whole host, into `cache`, a folder that all processes here share (by
    default one in shared memory, named after the service's). `is_far` overrides this choice.
    """
    if isinstance(source, str | Path):
        return VersionStore(source, keep=keep)
    where = _ask(source, "where")
    if is_far is None:
        is_far = where["host"] != host_id() or not Path(where["folder"]).is_dir()
    if not is_far:
        return VersionStore(where["folder"], keep=where["keep"])
    folder = Path(cache) if cache is not None else _cache_folder(where["host"], where["folder"])
    return FarVersions(source, VersionStore(folder, keep=where["keep"]))


class Subscription:
    """The newest version of one model, whenever there is one."""

    def __init__(self, versions: VersionStore | FarVersions, model: str) -> None:
        self._versions = versions
        self.model = model
        self._num_rewinds = versions.num_rewinds(model)

    def newer(self, than: int | None) -> tuple[Version, Weights] | None:
        """The newest version if it is another than `than`; after a rewind its number may be lower. Never waits long."""
        newest = self._versions.latest(self.model)
        if newest is None:
            return None
        num_rewinds = self._versions.num_rewinds(self.model)
        if newest == than and num_rewinds == self._num_rewinds:
            return None
        found = self._versions.get(self.model)
        self._num_rewinds = num_rewinds
        return found


class FarVersions:
    """A `VersionStore` on another host, for its readers and publishers: a cache of this host is filled by calls.

    A thread for each model keeps `latest` fresh: it may be a round trip old, or older while the service is lost.
    """

    def __init__(self, service: _Remote, cache: VersionStore) -> None:
        self._service = service
        self._cache = cache
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[int | None, int, int]] = {}  # by model: the answer of `latest`
        self._closed = threading.Event()

    def latest(self, model: str) -> int | None:
        return (self._newest.get(model) or self._listen(model))[0]

    def num_rewinds(self, model: str) -> int:
        return (self._newest.get(model) or self._listen(model))[1]

    def resolve(self, model: str, version: int | str = LATEST) -> int:
        if not isinstance(version, str):
            return int(version)
        number = self.latest(model) if version == LATEST else self.tags(model).get(version)
        if number is None:
            raise errors.DataError(f"{model!r} has no version {version!r} yet")
        return number

    def num_published(self, model: str) -> int:
        return (self._newest.get(model) or self._listen(model))[2]

    def changes(self, model: str) -> Changes:
        found = _ask(self._service, "changes", model)
        return Changes(**{**found, "numbers": tuple(found["numbers"])})

    def attend(self, model: str) -> None:
        _ask(self._service, "attend", model)

    def at_or_before(self, model: str, step: int) -> int:
        return at_or_before(model, self.changes(model).numbers, step)

    def _listen(self, model: str) -> tuple[int | None, int, int]:
        with self._lock:
            if model not in self._newest:
                number, num_rewinds, num_published = _ask(self._service, "latest", model)
                self._newest[model] = number, num_rewinds, num_published
                thread = threading.Thread(target=self._follow, args=(model,), daemon=True, name=f"weights-{model}")
                thread.start()
            return self._newest[model]

    def _follow(self, model: str) -> None:
        """Keep the newest number of a model fresh, until closed."""
        is_lost = False
        while not self._closed.is_set():
            try:
                number = self._newest[model][0]
                newest = self._service.submit("wait_newer", model, number, _LONG_POLL_S).result()
            except errors.LudusError as error:
                if not is_lost and not self._closed.is_set():
                    _log.warning("the weights service is lost; %r stays at %s for now: %s", model, number, error)
                is_lost = True
                self._closed.wait(_RETRY_AFTER_S)
                continue
            is_lost = False
            self._newest[model] = newest[0], newest[1], newest[2]

    def get(self, model: str, version: int | str = LATEST, *, private: bool = False) -> tuple[Version, Weights]:
        """From the cache, which the first process fills; the others wait for it and then read the same file."""
        check_model(model)
        version = version if isinstance(version, str) else int(version)
        self._cache.folder.mkdir(parents=True, exist_ok=True)
        with files.lock(self._cache.folder / f".{model}.fetch", timeout_s=_PATIENCE_S * 2):
            cached = self._cached(model, version, private=private)
            have = cached[0].digest if cached is not None else None
            answer = _ask(self._service, "pull", model, version, have)
            found = Version.from_nest(answer["version"])
            if answer["weights"] is None and cached is not None:
                return cached
            self._cache.discard(model, found.number)  # the number stood for other weights before a rewind
            self._cache.publish(model, answer["weights"], number=found.number, digest=found.digest)
            return self._cache.get(model, found.number, private=private)

    def _cached(self, model: str, version: int | str, *, private: bool) -> tuple[Version, Weights] | None:
        """What the cache has under that number; of a name, what it last stood for."""
        if not isinstance(version, int):
            newest = self._newest.get(model)
            number = newest[0] if newest is not None and version == LATEST else self._cache.latest(model)
        else:
            number = version
        if number is None:
            return None
        try:
            return self._cache.get(model, number, private=private)
        except errors.DataError:  # not fetched yet, or no longer kept
            return None

    def publish(
        self, model: str, weights: Mapping[str, NDArray[Any]], *, number: int | None, digest: str | None = None
    ) -> Version:
        """`VersionStore.publish`, where the folder is. A call that is repeated publishes once."""
        digest = digest or digest_of(dict(weights))
        if number is not None:
            return Version.from_nest(_ask(self._service, "publish", model, dict(weights), int(number), digest))
        for _ in range(_MAX_RACES):
            newest = _ask(self._service, "latest", model)[0]
            following = 0 if newest is None else newest + 1
            try:
                return self.publish(model, weights, number=following, digest=digest)
            except errors.DataError:
                if _ask(self._service, "latest", model)[0] == newest:
                    raise
        raise errors.Overloaded(f"{model!r} is published by others faster than from here; nothing was published")

    def tag(self, model: str, name: str, number: int) -> None:
        _ask(self._service, "tag", model, name, number)

    def untag(self, model: str, name: str) -> None:
        _ask(self._service, "untag", model, name)

    def tags(self, model: str) -> dict[str, int]:
        tags: dict[str, int] = _ask(self._service, "tags", model)
        return tags

    def versions(self, model: str) -> list[Version]:
        return [Version.from_nest(version) for version in _ask(self._service, "versions", model)]

    def rewind(self, model: str, number: int | None) -> int:
        return int(_ask(self._service, "rewind", model, number))

    def close(self) -> None:
        """Stop listening. Arrays that were read stay valid."""
        self._closed.set()


def _ask(service: _Remote, command: str, *args: Any) -> Any:
    """Call the service; once more when it was lost on the way. Every command of it can be repeated safely."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return service.submit(command, *args).result()
        except errors.OutcomeUnknown:
            if time.monotonic() >= until:
                raise
            time.sleep(_RETRY_AFTER_S)


def _cache_folder(host: str, folder: str) -> Path:
    """The same for all processes of this user on this host that read the same store."""
    caches = (_private_memory() or runtime_folder()) / "weights"
    caches.mkdir(exist_ok=True)
    _remove_stale(caches)
    return caches / hashlib.sha256(f"{host}\0{folder}".encode()).hexdigest()[:16]


def _private_memory() -> Path | None:
    """A folder of this user alone in shared memory, where the system has that."""
    if not _SHARED_MEMORY.is_dir():
        return None
    own = _SHARED_MEMORY / f"ludus-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    status = own.stat()
    return own if status.st_uid == os.getuid() and not status.st_mode & 0o077 else None


def _remove_stale(caches: Path) -> None:
    """Remove the caches of stores of which nothing was fetched for long: their trials are over."""
    horizon = time.time() - _STALE_AFTER_S
    for cache in caches.iterdir():
        try:
            is_stale = max(path.stat().st_mtime for path in (cache, *cache.glob("*"))) < horizon
        except FileNotFoundError:  # another process is removing it
            continue
        if is_stale:
            shutil.rmtree(cache, ignore_errors=True)
