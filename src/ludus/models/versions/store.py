"""The versions of models in a folder that all processes of a host share.

    store = VersionStore(folder)
    store.publish("policy", policy.weights(), number=12)     # folder/policy/000000012-<digest>.weights
    store.latest("policy")                                   # 12: a look into shared memory, no system call
    version, weights = store.get("policy")                   # views of the file itself: one copy for the whole host

A version is one file, written under a temporary name, synced and renamed, so it is whole or not there. It never
changes, and its digest is compared when it is loaded: one that is damaged all the same is set aside as
`….weights.damaged`, and the one before it is the newest. Readers keep what they have mapped even when its name is gone;
`hold` keeps the name, too, for those who come later.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import mmap
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import errors, files
from ludus.data.digest import digest as digest_of
from ludus.models.versions import changes as followed
from ludus.models.versions.changes import Changes
from ludus.models.versions.file import Version, check_weights, read_file, write_file

__all__ = ["LATEST", "Hold", "Version", "VersionStore", "check_model", "check_tag"]

LATEST = "latest"
_FOLLOW = "follow"  # a session that asks for it plays the newest at each call
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_FILE = re.compile(r"(\d{9,})-([0-9a-f]{12})\.weights")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_COUNTER, _COUNTER_BYTES = "newest", 24
_TAGS, _CHECKED_TAGS, _LOCK = "tags.json", "tags.checked", ".lock"
_NONE = -1
_MAX_RACES = 100
_REPAIR_WAIT_S = 5.0

_log = logging.getLogger(__name__)


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

    `keep`: how many of the newest stay; those that have a tag or that somebody holds stay too. `durable=False` leaves
    out the syncs to disk, 0.8 ms for each version, where something else is the truth after a power cut: a checkpoint.
    """

    def __init__(self, folder: Path | str, *, keep: int = 4, durable: bool = True) -> None:
        if keep < 1:
            raise errors.ConfigError(f"keep={keep} versions: at least 1 must stay, or nobody could read any.")
        self.folder = Path(folder)
        self.keep = keep
        self._durable = durable
        self._counters: dict[str, memoryview] = {}
        self._deleted: dict[str, list[memoryview]] = {}  # counters of folders that are gone; others still look at them

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

    def num_published(self, model: str) -> int:
        """How many versions were published in all. As cheap as `latest`."""
        counter = self._counters.get(model) or self._open_counter(model)
        return 0 if counter is None else int(counter[2])

    def changes(self, model: str) -> Changes:
        """Counts and numbers of one moment."""
        if not self._folder(model).is_dir():
            return Changes(num_published=0, num_rewinds=0, numbers=())
        with files.lock(self._folder(model) / _LOCK):
            return Changes(
                num_published=self.num_published(model),
                num_rewinds=self.num_rewinds(model),
                numbers=tuple(self.numbers(model)),
            )

    def attend(self, model: str) -> None:
        """Say that somebody subscribes: for the next half minute more versions stay, so that it misses none."""
        check_model(model)
        files.make_folder(self.folder, durable=self._durable)
        followed.attend(self.folder, model)

    def at_or_before(self, model: str, step: int) -> int:
        """The newest number at or before `step`; -1: the newest. Raises `DataError` if there is none."""
        return followed.at_or_before(model, self.numbers(model), step)

    def numbers(self, model: str) -> list[int]:
        """Of the versions that are there, oldest first. Opens no file."""
        return [number for number, _ in self._paths(model)]

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

        `private`: see `read_file`. Where the newest is asked for and damaged, the newest valid one is given, with a
        warning. Raises `DataError`, which says what is there, if there is no such version (any more) or it is damaged.
        """
        damage: errors.DataError | None = None
        for _ in range(_MAX_RACES):
            number = self._resolve_after(model, version, damage)
            path = self._path(model, number)
            if path is not None:
                try:
                    return read_file(path, private=private)
                except FileNotFoundError:
                    pass  # retention was quicker; a newer one may be meant by now
                except errors.DataError as error:
                    damage = self._set_aside(model, path, error)
                    if version == LATEST:
                        continue
                    raise damage from None
            if not isinstance(version, str) or self.resolve(model, version) == number:
                break
        raise errors.DataError(self._missing(model, version))

    def _resolve_after(self, model: str, version: int | str, damage: errors.DataError | None) -> int:
        """`resolve`; if the damaged one was the last there was, that is the reason to give."""
        if damage is not None and self.latest(model) is None:
            raise damage
        return self.resolve(model, version)

    def hold(self, model: str, version: int | str = LATEST) -> Hold:
        """Keep a version from retention and `rewind` until the hold is closed or this process has died.

        For those who will need it later by its number, here or in another process. Raises `DataError` as `get` does.
        """
        damage: errors.DataError | None = None
        for _ in range(_MAX_RACES):
            number = self._resolve_after(model, version, damage)
            path = self._path(model, number)
            fd = None if path is None else _hold_file(path)
            if path is not None and fd is not None:
                hold = Hold(number, fd)
                try:
                    read_file(path)
                    return hold
                except FileNotFoundError:  # `discard` was quicker
                    hold.close()
                    continue
                except errors.DataError as error:
                    hold.close()
                    damage = self._set_aside(model, path, error)
                if version == LATEST:
                    continue
                raise damage
            if not isinstance(version, str) or self.resolve(model, version) == number:
                break
        raise errors.DataError(self._missing(model, version))

    def versions(self, model: str, *, most: int | None = None) -> list[Version]:
        """All that are there, or the newest, at most so many, oldest first.

        Torn ones are set aside; digests are compared when a version is loaded.
        """
        found = []
        paths = self._paths(model)
        for _number, path in paths if most is None else paths[max(0, len(paths) - most) :]:
            try:
                found.append(read_file(path, check=False)[0])
            except FileNotFoundError:  # retention was quicker
                continue
            except errors.DataError as error:
                self._set_aside(model, path, error)
        return found

    def models(self) -> list[str]:
        """The models of which anything was ever published."""
        return sorted(path.parent.name for path in self.folder.glob(f"*/{_COUNTER}"))

    def verify(self, model: str, version: int | str = LATEST) -> Version:
        """Read a version whole and compare its digest, though that was done before.

        Raises `DataError` if its bytes are not those published.
        """
        found, weights = self.get(model, version)
        if digest_of(weights) != found.digest:
            raise errors.DataError(
                f"version {found.number} of {model!r} was altered on disk: its digest is not {found.digest[:12]}. "
                "Do not use it; publish it again under another number."
            )
        return found

    def tags(self, model: str) -> dict[str, int]:
        """Names for numbers; a version that has one is never removed.

        They are written twice, the second time with a checksum: a damaged file is passed over with a warning. Raises
        `DataError` if neither can be read.
        """
        folder = self._folder(model)
        plain, checked = _read_bytes(folder / _TAGS), _read_bytes(folder / _CHECKED_TAGS)
        if plain is None and checked is None:
            return {}
        content = None if checked is None else _unseal(checked)
        if content is not None:
            if content != plain:
                _log.warning("%s is damaged or missing; %s is used.", folder / _TAGS, _CHECKED_TAGS)
            return _parse_tags(content) or {}
        tags = None if plain is None else _parse_tags(plain)
        if tags is None:
            raise errors.DataError(
                f"the tags of {model!r} cannot be read: {folder / _TAGS} and its copy {_CHECKED_TAGS} are damaged. "
                "Remove both to go on without tags, and tag or promote again."
            )
        if checked is not None:
            _log.warning("%s is damaged; %s is used.", folder / _CHECKED_TAGS, _TAGS)
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
        weights = {name: np.asarray(array) for name, array in weights.items()}
        digest = digest or digest_of(dict(weights))
        folder = self._make_folder(model)
        with files.lock(folder / _LOCK):
            if number is None:
                newest = self.latest(model)
                number = 0 if newest is None else newest + 1
            version = Version(model=model, number=int(number), nbytes=nbytes, digest=digest, created=time.time())
            known = self._path(model, number)
            if known is not None:
                try:
                    there = read_file(known)[0]
                except errors.DataError as error:
                    self._set_aside_locked(model, known, error)
                    known = None
                else:
                    version = self._same(there, version)
            named = [] if tags is None else tags(version)
            for name in named:
                check_tag(name)
            if known is None:
                files.remove_parts(folder, "*.weights")  # the holder of the lock is the only publisher alive
                made = version
                files.write(
                    folder / f"{number:09d}-{version.digest[:12]}.weights",
                    lambda file: write_file(file, made, weights),
                    durable=self._durable,
                )
            counter = self._counters.get(model) or self._open_counter(model)
            assert counter is not None, "made with the folder"
            if known is None:
                counter[2] += 1  # before the number: who sees the new number sees this, too
            counter[0] = max(counter[0], number)
            for deleted in self._deleted.get(model, ()):
                deleted[2] += int(known is None)
                deleted[0] = counter[0]
            if named:
                self._write_tags(model, {**self.tags(model), **dict.fromkeys(named, version.number)})
            self._retain(model, number, self.keep if keep is None else keep)
        return version

    def tag(self, model: str, name: str, number: int) -> None:
        """Name a version, so that it stays. A name that is taken moves. Raises `DataError` if it is not there."""
        check_tag(name)
        with files.lock(self._made_folder(model) / _LOCK):
            path = self._path(model, number)
            if path is None:
                raise errors.DataError(self._missing(model, number))
            _sync_file(path)  # its publisher may have left that out, and what has a tag is to survive a power cut
            self._write_tags(model, {**self.tags(model), name: number}, durable=True)

    def untag(self, model: str, name: str) -> None:
        """Remove a tag; its version goes with the next publish, if it is old. Removing nothing is not an error."""
        with files.lock(self._made_folder(model) / _LOCK):
            tags = self.tags(model)
            if tags.pop(name, None) is not None:
                self._write_tags(model, tags)

    def rewind(self, model: str, number: int | None) -> int:
        """Go back to `number` (`None`: to the beginning): later versions are removed, unless tagged or held.

        For a trainer that resumes from a checkpoint and will give the later numbers to other weights. Returns the
        number for it to go on with: `number`, or one beyond the versions that stay. Raises `DataError` if `number` is
        not there.
        """
        with files.lock(self._make_folder(model) / _LOCK):
            if number is not None and self._path(model, number) is None:
                raise errors.DataError(self._missing(model, number))
            last = _NONE if number is None else number
            counter, tags = self._counters[model], self.tags(model)
            later = {found: path for found, path in self._paths(model) if found > last}
            stay = {found for found in later if found in tags.values()}
            if len(stay) < len(later) or counter[0] > max([last, *stay]):
                counter[1] += 1
                counter[0] = max([last, *stay])  # before the files go: readers ask for the newest
                stay |= {found for found in later.keys() - stay if not _unlink_unheld(later[found])}
                counter[0] = max([last, *stay])
                self._write_tags(model, {name: n for name, n in tags.items() if n <= last or n in stay})
            return max([last, *stay]) + int(bool(stay) or number is None)

    def discard(self, model: str, number: int) -> None:
        """Remove one version, tagged or not; for caches. Removing nothing is not an error."""
        path = self._path(model, number)
        if path is not None:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing to do here; `FarVersions` stops listening."""

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
        """The model's folder with its counter in it, three int64: the newest number, how many rewinds and publishes."""
        folder = self._folder(model)
        if model in self._counters:
            if folder.is_dir():
                return folder
            _log.warning("%s was deleted. It is made again; its versions are lost.", folder)
            self._deleted.setdefault(model, []).append(self._counters.pop(model))
        files.make_folder(folder, durable=self._durable)
        with files.lock(folder / _LOCK):
            if self._open_counter(model, is_locked=True) is None:
                content = _NONE.to_bytes(8, "little", signed=True) + bytes(16)
                files.replace(folder / _COUNTER, [content], durable=self._durable)
                self._open_counter(model, is_locked=True)
        return folder

    def _open_counter(self, model: str, *, is_locked: bool = False) -> memoryview | None:
        """Map the counter. What it says is held to the files that are there: they are the truth."""
        try:
            fd = os.open(self._folder(model) / _COUNTER, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if os.fstat(fd).st_size != _COUNTER_BYTES:
                os.ftruncate(fd, _COUNTER_BYTES)
            counter = memoryview(mmap.mmap(fd, _COUNTER_BYTES)).cast("q")
        finally:
            os.close(fd)
        if counter[0] != self._newest_file(model):
            self._repair_counter(model, counter, is_locked=is_locked)
        return self._counters.setdefault(model, counter)

    def _newest_file(self, model: str) -> int:
        return max([number for number, _ in self._paths(model)], default=_NONE)

    def _repair_counter(self, model: str, counter: memoryview, *, is_locked: bool) -> None:
        path = self._folder(model) / _COUNTER
        try:  # under the lock: who publishes or rewinds changes both, one after the other
            with contextlib.nullcontext() if is_locked else files.lock(path.with_name(_LOCK), timeout_s=_REPAIR_WAIT_S):
                newest = self._newest_file(model)
                if counter[0] == newest:
                    return
                if counter[0] != _NONE or not is_locked:  # else it was made just now
                    _log.warning("%s says %d, and the newest version that is there is %d.", path, counter[0], newest)
                counter[1] += 1
                counter[0] = newest
        except errors.DeadlineExceeded as error:
            _log.warning("%s may be damaged and could not be checked: %s", path, error)

    def _set_aside(self, model: str, path: Path, error: errors.DataError) -> errors.DataError:
        """Take a damaged version out of use; the error to raise if it was asked for."""
        with files.lock(self._folder(model) / _LOCK):
            return self._set_aside_locked(model, path, error)

    def _set_aside_locked(self, model: str, path: Path, error: errors.DataError) -> errors.DataError:
        try:
            read_file(path)
        except errors.DataError:
            aside = files.set_aside(path)
        except FileNotFoundError:  # another process was quicker
            return error
        else:
            return error  # it was published again since
        match = _FILE.fullmatch(path.name)
        assert match is not None, "it was listed"
        newest = self._newest_file(model)
        counter = self._counters.get(model) or self._open_counter(model, is_locked=True)
        if counter is not None and counter[0] == int(match[1]):
            counter[1] += 1
            counter[0] = newest
        left = f"the newest that is left is {newest}" if newest != _NONE else "none is left"
        _log.warning("version %d of %r is damaged: %s. It is now %s; %s.", int(match[1]), model, error, aside, left)
        return errors.DataError(
            f"version {int(match[1])} of {model!r} is damaged and cannot be used: {error}. It was set aside as "
            f"{aside.name}; publish those weights again, or use another version."
        )

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
        if keep < followed.ATTENDED_KEEP and followed.is_attended(self.folder, model):
            keep = followed.ATTENDED_KEEP
        kept = {published, *self.tags(model).values(), *(number for number, _ in paths[-keep:])}
        for number, path in paths:
            if number not in kept:
                _unlink_unheld(path)

    def _write_tags(self, model: str, tags: Mapping[str, int], *, durable: bool | None = None) -> None:
        content = json.dumps(dict(sorted(tags.items()))).encode()
        durable = self._durable if durable is None else durable
        files.replace(self._folder(model) / _CHECKED_TAGS, [_seal(content)], durable=durable)
        files.replace(self._folder(model) / _TAGS, [content], durable=durable)

    def _missing(self, model: str, version: int | str) -> str:
        numbers = ", ".join(str(number) for number, _ in self._paths(model)) or "none"
        tags = "".join(f", {name} = {number}" for name, number in self.tags(model).items())
        gone = "" if isinstance(version, str) else " Older ones are removed unless they have a tag."
        return f"{model!r} has no version {version!r} here; there are: {numbers}{tags}.{gone}"


def _read_bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _seal(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _unseal(sealed: bytes) -> bytes | None:
    """What was sealed; `None` if it is damaged."""
    checksum, _, content = sealed.partition(b"\n")
    return content if checksum == hashlib.sha256(content).hexdigest().encode() else None


def _parse_tags(content: bytes) -> dict[str, int] | None:
    try:
        tags = json.loads(content)
    except ValueError:
        return None
    is_valid = isinstance(tags, dict) and all(type(number) is int for number in tags.values())
    return tags if is_valid else None


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        files.sync(fd)
    finally:
        os.close(fd)


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


def _unlink_unheld(path: Path) -> bool:
    """Remove a version's file, unless somebody holds it; whether it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
        return True
    except BlockingIOError:  # a later publish looks again
        return False
    finally:
        os.close(fd)
