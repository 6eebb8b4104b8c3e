"""The versions of models in a folder that all processes of a host share.

    store = VersionStore(folder)
    store.publish("policy", policy.weights(), number=12)     # folder/policy/000000012-<digest>.weights
    store.latest("policy")                                   # 12: a look into shared memory, no system call
    version, weights = store.get("policy")                   # views of the file itself: one copy for the whole host

A version is one file, written under a temporary name and renamed, so it is whole or not there. It never changes.
Readers keep what they have mapped even when its name is gone; `hold` keeps the name, too, for those who come later.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ludus import errors
from ludus.data.digest import digest as digest_of
from ludus.services.weights import file_lock
from ludus.services.weights.version import Version, check_weights, read_file, write_file

__all__ = ["LATEST", "Hold", "Version", "VersionStore", "check_model", "check_tag"]

LATEST = "latest"
_FOLLOW = "follow"  # a session that asks for it plays the newest at each call
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_FILE = re.compile(r"(\d{9,})-([0-9a-f]{12})\.weights")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PART = ".part"
_COUNTER, _TAGS, _LOCK = "newest", "tags.json", ".lock"
_NONE = -1
_MAX_RACES = 100


def check_model(model: str) -> None:
    """Raise `DataError` for a name that could not be a folder's."""
    if not isinstance(model, str) or not _NAME.fullmatch(model):
        raise errors.DataError(
            f"{model!r} cannot name a model: letters, digits, '_', '.' and '-', not a '.' first; it names a folder"
        )


def check_tag(name: str) -> None:
    """Raise `DataError` for what cannot be a tag."""
    if not isinstance(name, str) or not _TAG.fullmatch(name) or name in (LATEST, _FOLLOW):
        raise errors.DataError(
            f"{name!r} cannot be a tag: a letter, then letters, digits, '_', '.' or '-'; not 'latest', not 'follow'"
        )


class Hold:
    """While it is open, retention leaves a version where it is. The end of the process closes it, however it ends."""

    def __init__(self, number: int, fd: int) -> None:
        self.number = number
        self._fd: int | None = fd

    def close(self) -> None:
        """Let go; the version goes with the next publish, if it is old. Doing it twice does nothing."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class VersionStore:
    """Any number of processes may read and publish.

    `keep`: how many of the newest stay; those that have a tag or that somebody holds stay too.
    """

    def __init__(self, folder: Path | str, *, keep: int = 4) -> None:
        if keep < 1:
            raise errors.ConfigError(f"keep={keep} versions: at least 1 must stay, or nobody could read any.")
        self.folder = Path(folder)
        self.keep = keep
        self._counters: dict[str, memoryview] = {}

    # -- reading ------------------------------------------------------------------------------------------------

    def latest(self, model: str) -> int | None:
        """The newest number of a model; `None` before the first. Costs a fraction of a microsecond: ask often."""
        counter = self._counters.get(model) or self._open_counter(model)
        if counter is None:
            return None
        number: int = counter[0]
        return None if number == _NONE else number

    def num_rewinds(self, model: str) -> int:
        """How often the model was rewound: a number may stand for other weights after that."""
        counter = self._counters.get(model) or self._open_counter(model)
        return 0 if counter is None else int(counter[1])

    def resolve(self, model: str, version: int | str = LATEST) -> int:
        """The number that is meant: a number itself, a tag's, or the newest. Raises `DataError` if there is none."""
        if not isinstance(version, str):
            return int(version)
        number = self.latest(model) if version == LATEST else self.tags(model).get(version)
        if number is None:
            raise errors.DataError(self._missing(model, version))
        return number

    def get(
        self, model: str, version: int | str = LATEST, *, private: bool = False
    ) -> tuple[Version, dict[str, NDArray[Any]]]:
        """A version, by its number, its tag, or "latest", and its arrays: read-only views of its file.

        `private` is told by `read_file`. Raises `DataError`, which tells what is there, if there is no such version
        (any more).
        """
        for _ in range(_MAX_RACES):
            number = self.resolve(model, version)
            path = self._path(model, number)
            try:
                if path is not None:
                    return read_file(path, private=private)
            except FileNotFoundError:
                pass  # retention was quicker; a newer one may be meant by now
            if not isinstance(version, str) or self.resolve(model, version) == number:
                break
        raise errors.DataError(self._missing(model, version))

    def hold(self, model: str, version: int | str = LATEST) -> Hold:
        """Keep a version from retention until the hold is closed or this process has died. `rewind` heeds no holds.

        For those who will need it later by its number, here or in another process. Raises `DataError` as `get` does.
        """
        for _ in range(_MAX_RACES):
            number = self.resolve(model, version)
            path = self._path(model, number)
            fd = None if path is None else _hold_file(path)
            if fd is not None:
                return Hold(number, fd)
            if not isinstance(version, str) or self.resolve(model, version) == number:
                break
        raise errors.DataError(self._missing(model, version))

    def versions(self, model: str) -> list[Version]:
        """All that are there, oldest first."""
        found = []
        for _number, path in self._paths(model):
            try:
                found.append(read_file(path)[0])
            except FileNotFoundError:  # retention was quicker
                continue
        return found

    def models(self) -> list[str]:
        """The models of which anything was ever published."""
        return sorted(path.parent.name for path in self.folder.glob(f"*/{_COUNTER}"))

    def verify(self, model: str, version: int | str = LATEST) -> Version:
        """Read a version whole and compare its digest. Raises `DataError` if its bytes are not those published."""
        found, weights = self.get(model, version)
        if digest_of(weights) != found.digest:
            raise errors.DataError(
                f"version {found.number} of {model!r} was altered on disk: its digest is not {found.digest[:12]}. "
                "Do not use it; publish it again under another number."
            )
        return found

    def tags(self, model: str) -> dict[str, int]:
        """Names for numbers; a version that has one is never removed."""
        try:
            tags: dict[str, int] = json.loads((self._folder(model) / _TAGS).read_bytes())
        except FileNotFoundError:
            return {}
        return tags

    # -- writing ------------------------------------------------------------------------------------------------

    def publish(
        self,
        model: str,
        weights: Mapping[str, NDArray[Any]],
        *,
        number: int | None,
        digest: str | None = None,
        keep: int | None = None,
        tags: Callable[[Version], Sequence[str]] | None = None,
    ) -> Version:
        """Make version `number`. Doing it again with the same weights is fine; older versions than `keep` are removed.

        With `number=None` it is the one after the newest, and no two publishers get the same. `digest`, if known, must
        be the weights' `ludus.data.digest`; it is not computed again. `keep` is the store's, unless it is given. `tags`
        is asked what to name it, when its number is known and while nobody else publishes. Raises `DataError` if the
        number stands for other weights already; what raises publishes nothing.
        """
        if number is not None and number < 0:
            raise errors.DataError(f"version {number} of {model!r}: numbers begin at 0")
        if digest is not None and not _DIGEST.fullmatch(digest):
            raise errors.DataError(f"{digest!r} is not a digest: those have 64 hexadecimal digits")
        nbytes = check_weights(weights)
        digest = digest or digest_of(dict(weights))
        folder = self._make_folder(model)
        with file_lock.hold(folder / _LOCK):
            if number is None:
                newest = self.latest(model)
                number = 0 if newest is None else newest + 1
            version = Version(model=model, number=int(number), nbytes=nbytes, digest=digest, created=time.time())
            known = self._path(model, number)
            if known is not None:
                version = self._same(read_file(known)[0], version)
            named = [] if tags is None else tags(version)
            for name in named:
                check_tag(name)
            if known is None:
                self._clear_parts(model)
                part = folder / f".{number}{_PART}"
                write_file(part, version, weights)
                part.rename(folder / f"{number:09d}-{version.digest[:12]}.weights")
            counter = self._counters.get(model) or self._open_counter(model)
            assert counter is not None, "made with the folder"
            counter[0] = max(counter[0], number)
            if named:
                self._write_tags(model, {**self.tags(model), **dict.fromkeys(named, version.number)})
            self._retain(model, number, self.keep if keep is None else keep)
        return version

    def tag(self, model: str, name: str, number: int) -> None:
        """Name a version, so that it stays. A name that is taken moves. Raises `DataError` if it is not there."""
        check_tag(name)
        with file_lock.hold(self._made_folder(model) / _LOCK):
            if self._path(model, number) is None:
                raise errors.DataError(self._missing(model, number))
            self._write_tags(model, {**self.tags(model), name: number})

    def untag(self, model: str, name: str) -> None:
        """Remove a tag; its version goes with the next publish, if it is old. Removing nothing is not an error."""
        with file_lock.hold(self._made_folder(model) / _LOCK):
            tags = self.tags(model)
            if tags.pop(name, None) is not None:
                self._write_tags(model, tags)

    def rewind(self, model: str, number: int | None) -> None:
        """Go back: `number` is the newest again (`None`: nothing is), and what came after it is removed, tags too.

        For a trainer that resumes from a checkpoint and will give the later numbers to other weights. Raises
        `DataError` if that version is not there.
        """
        with file_lock.hold(self._make_folder(model) / _LOCK):
            if number is not None and self._path(model, number) is None:
                raise errors.DataError(self._missing(model, number))
            newest = _NONE if number is None else number
            counter = self._counters[model]
            if max([counter[0], *(found for found, _ in self._paths(model))]) <= newest:
                return
            counter[1] += 1
            counter[0] = newest
            self._write_tags(model, {name: n for name, n in self.tags(model).items() if n <= newest})
            for later, path in self._paths(model):
                if later > newest:
                    path.unlink(missing_ok=True)

    def discard(self, model: str, number: int) -> None:
        """Remove one version, tagged or not; for caches. Removing nothing is not an error."""
        path = self._path(model, number)
        if path is not None:
            path.unlink(missing_ok=True)

    # -- the folder ---------------------------------------------------------------------------------------------

    def _folder(self, model: str) -> Path:
        check_model(model)
        return self.folder / model

    def _made_folder(self, model: str) -> Path:
        folder = self._folder(model)
        if not folder.is_dir():
            raise errors.DataError(self._missing(model, LATEST))
        return folder

    def _make_folder(self, model: str) -> Path:
        """The model's folder with its counter in it: two int64, the newest number and how often it was rewound."""
        folder = self._folder(model)
        if model in self._counters:
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        with file_lock.hold(folder / _LOCK):
            if self._open_counter(model) is None:
                self._replace(folder / _COUNTER, _NONE.to_bytes(8, "little", signed=True) + bytes(8))
                self._open_counter(model)
        return folder

    def _open_counter(self, model: str) -> memoryview | None:
        try:
            fd = os.open(self._folder(model) / _COUNTER, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            counter = memoryview(mmap.mmap(fd, 16)).cast("q")
        finally:
            os.close(fd)
        return self._counters.setdefault(model, counter)

    def _paths(self, model: str) -> list[tuple[int, Path]]:
        """The files of all versions with their numbers, in order."""
        folder = self._folder(model)
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return []
        found = [(match, folder / match[0]) for match in map(_FILE.fullmatch, names) if match]
        return sorted((int(match[1]), path) for match, path in found)

    def _path(self, model: str, number: int) -> Path | None:
        return next((path for found, path in self._paths(model) if found == number), None)

    def _same(self, known: Version, version: Version) -> Version:
        if known.digest != version.digest:
            raise errors.DataError(
                f"version {known.number} of {known.model!r} is {known.digest[:12]} already, and versions never change; "
                f"{version.digest[:12]} was not published. Give it another number, or rewind the model first."
            )
        return known

    def _retain(self, model: str, published: int, keep: int) -> None:
        """Unlink what is neither among the newest, nor tagged, nor just published, nor held by anybody."""
        paths = self._paths(model)
        kept = {published, *self.tags(model).values(), *(number for number, _ in paths[-keep:])}
        for number, path in paths:
            if number not in kept:
                _unlink_unheld(path)

    def _clear_parts(self, model: str) -> None:
        """Remove what publishers left that were killed: whoever holds the lock is the only one alive."""
        for path in self._folder(model).glob(f".*{_PART}"):
            path.unlink(missing_ok=True)

    def _write_tags(self, model: str, tags: Mapping[str, int]) -> None:
        self._replace(self._folder(model) / _TAGS, json.dumps(dict(sorted(tags.items()))).encode())

    @staticmethod
    def _replace(path: Path, content: bytes) -> None:
        part = path.with_name(f".{path.name}{_PART}")
        part.write_bytes(content)
        part.rename(path)

    def _missing(self, model: str, version: int | str) -> str:
        numbers = ", ".join(str(number) for number, _ in self._paths(model)) or "none"
        tags = "".join(f", {name} = {number}" for name, number in self.tags(model).items())
        gone = "" if isinstance(version, str) else " Older ones are removed unless they have a tag."
        return f"{model!r} has no version {version!r} here; there are: {numbers}{tags}.{gone}"


def _hold_file(path: Path) -> int | None:
    """A descriptor with a shared lock on a version's file; `None` if retention was quicker."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)  # retention holds the other lock for as long as an unlink takes
        if os.fstat(fd).st_nlink:
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _unlink_unheld(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:  # somebody holds it: a later publish looks again
        return
    finally:
        os.close(fd)
