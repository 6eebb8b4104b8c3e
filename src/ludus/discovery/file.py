"""`file:///folder`: names in a folder that all processes share, on one machine or over a network file system.

    folder/.lock           held (flock) by the writer
    folder/a/b/@           the record of the name a/b, as JSON

A record is written beside its place and renamed into it, so nobody ever reads half of one; readers take no
lock. A lease lapses `ttl` seconds after the file's time of modification, and renewing it resets that time.
Both that time and "now" are taken from the file system, so hosts whose clocks disagree still agree on which
leases have lapsed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import SplitResult, unquote

from ludus import errors, files
from ludus.discovery import names as spelling
from ludus.discovery.store import Feed, Record, decode, encode
from ludus.discovery.store_names import StoreNames
from ludus.discovery.watching import PollFeed

__all__ = ["FileNames", "FileStore"]

log = logging.getLogger(__name__)

_POLL_S = 0.1
_LOCK_TIMEOUT_S = 5.0
_CLOCK_AGE_S = 5.0  # how long one comparison of the two clocks is believed
_CLOCK_GRAIN_S = 0.1
_RECORD = "@"
_OLD_PART = "@.part"  # what earlier versions left when they were killed


class FileNames(StoreNames):
    """Names in a shared folder, which is made if it is not there."""

    def __init__(self, folder: str | Path) -> None:
        super().__init__(FileStore(Path(folder)))

    @classmethod
    def from_url(cls, url: SplitResult) -> FileNames:
        if url.netloc not in ("", "localhost") or not url.path.strip("/"):
            raise errors.DiscoveryError(
                f"{url.geturl()!r}: write the folder's absolute path, as in file:///shared/names"
            )
        return cls(unquote(url.path))


class FileStore:
    """A `Store` in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock_offset = time.time() - time.monotonic()
        self._clock_read_at = -float("inf")
        self._broken: set[Path] = set()

    def put(self, name: str, record: Record, *, replace: bool) -> bool:
        path = self._path(name)
        with self._errors(name), self._locked():
            current = self._live(path)
            if current is not None and current.owner != record.owner and not replace:
                return False
            if current == record:
                os.utime(path)
                return True
            path.parent.mkdir(parents=True, exist_ok=True)
            files.replace(path, [encode(record)], durable=record.ttl is None)  # a lease ends with a reboot anyway
            return True

    def get(self, name: str) -> str | None:
        with self._errors(name):
            record = self._live(self._path(name))
            return None if record is None else record.value

    def read(self, root: str) -> dict[str, str]:
        found: dict[str, str] = {}
        top = self._path(root).parent
        with self._errors(root):
            for folder, folders, files in os.walk(top):
                folders[:] = [each for each in folders if not each.startswith(".")]
                if _RECORD not in files:
                    continue
                path = Path(folder)
                record = self._live(path / _RECORD)
                if record is not None:
                    parts = path.relative_to(top).parts
                    found["/".join([root, *map(unquote, parts)])] = record.value
        return found

    def remove(self, name: str, *, owner: str | None) -> bool:
        path = self._path(name)
        with self._errors(name), self._locked():
            current = self._live(path)
            if current is None or owner not in (None, current.owner):
                return False
            path.unlink()
            self._prune(path.parent)
            return True

    def clear(self, root: str) -> None:
        top = self._path(root).parent
        with self._errors(root), self._locked():
            for folder, _, files in os.walk(top, topdown=False):
                if _RECORD in files:
                    Path(folder, _RECORD).unlink()
                self._prune(Path(folder))

    def follow(self, roots: Sequence[str]) -> Feed:
        return PollFeed(_POLL_S)

    def close(self) -> None:
        """Nothing is held open between two operations."""

    def _path(self, name: str) -> Path:
        return self._folder.joinpath(*map(_quote_part, spelling.check(name).split("/")), _RECORD)

    def _live(self, path: Path) -> Record | None:
        """The record at `path`, unless there is none, it has lapsed, or it is not a record."""
        try:
            with path.open("rb") as file:
                content = file.read()
                written_at = os.fstat(file.fileno()).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None
        record = decode(content)
        if record is None:
            if path not in self._broken:
                self._broken.add(path)
                log.warning("%s is not a record of a name (torn, or another program's); taken as absent", path)
            return None
        if record.ttl is not None and written_at + record.ttl <= self._now():
            return None
        return record

    def _now(self) -> float:
        """The file system's time, which times of modification are in; on a network, the file server's."""
        if time.monotonic() - self._clock_read_at > _CLOCK_AGE_S:
            # Where this process may only read, its own clock has to do.
            with contextlib.suppress(OSError), self._open_lock() as lock:
                self._read_clock(lock)
        return time.monotonic() + self._clock_offset

    def _read_clock(self, lock: int) -> None:
        os.utime(lock)
        self._clock_read_at = time.monotonic()
        offset = os.fstat(lock).st_mtime - self._clock_read_at
        # What is read is late by the clock's grain and the way to the server, never early: the largest is the best,
        # and with it a lease that has lapsed stays so. A difference larger than that means that a clock was set.
        is_set = abs(offset - self._clock_offset) > _CLOCK_GRAIN_S
        self._clock_offset = offset if is_set else max(offset, self._clock_offset)

    @contextlib.contextmanager
    def _open_lock(self) -> Iterator[int]:
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            yield lock
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock. The system lets go of it when its holder dies."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(
                    files.lock(self._folder / ".lock", timeout_s=_LOCK_TIMEOUT_S, mode=files.PUBLIC)
                )
            except errors.DeadlineExceeded:
                raise errors.DiscoveryError(
                    f"another process has held {self._folder / '.lock'} for {_LOCK_TIMEOUT_S:g} s: "
                    f"is it stopped, or the file server stuck?"
                ) from None
            self._read_clock(lock)
            yield

    def _prune(self, folder: Path) -> None:
        """Remove the folders from here up that have become empty; the lock keeps writers out of them."""
        with contextlib.suppress(OSError):  # not empty, or gone already
            (folder / _OLD_PART).unlink(missing_ok=True)
            files.remove_parts(folder)
            while folder != self._folder:
                folder.rmdir()
                folder = folder.parent

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise errors.DiscoveryError(
                f"the names in {self._folder} are out of reach, at {name!r}: {error}"
            ) from error


def _quote_part(part: str) -> str:
    """A part of a name as a folder's name: never `@`, and without a leading dot. `unquote` is the inverse."""
    quoted = part.replace("%", "%25").replace("@", "%40")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted
