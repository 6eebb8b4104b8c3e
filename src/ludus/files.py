"""Durable files: whole or absent after any kill or power cut; and the locks between processes of a host.

    files.replace(folder / "config.json", [content])          # readers find the old file or the new one, never a part
    with files.lock(folder / ".lock"): ...                    # for a moment; others wait
    with files.hold(folder / "driver.lock", refusal=…): ...   # as long as this process works here; others are refused

The kernel releases a lock when its holder dies, however it dies.

A replacement is written to a temporary name in the same folder, synced, renamed, and then its folder is synced: without
the first sync a power cut leaves an empty file under the right name, without the second it brings the old one back. A
new folder is a name in its parent, which is synced for the same reason.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ludus import errors

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "append_line",
    "hold",
    "lock",
    "make_folder",
    "move",
    "open_regular",
    "read_json",
    "remove_parts",
    "replace",
    "replace_json",
    "set_aside",
    "sync",
    "sync_folder",
    "write",
]

PUBLIC, PRIVATE = 0o666, 0o600
"""Modes of new files, before the umask: readable as the user's other files are, or by the user alone."""

_LOG = logging.getLogger(__name__)
_TICK_S = 0.002
_MAX_JSON_BYTES = 1 << 26
_number = itertools.count()
_held: set[int] = set()  # descriptors of `hold`


def replace(path: Path, parts: Iterable[Buffer], *, mode: int = PUBLIC, durable: bool = True) -> None:
    """Put these bytes under `path`. Raises `OSError`, with the old file as it was, if they cannot be written.

    `durable=False` leaves out the syncs: a kill still leaves the old file or the new one, a power cut may leave an
    empty one. For what is written often and is of no use after a reboot.
    """

    def fill(file: BinaryIO) -> None:
        for content in parts:
            file.write(content)

    write(path, fill, mode=mode, durable=durable)


def replace_json(path: Path, content: Mapping[str, Any]) -> None:
    """`replace` with an object as JSON that a person can read."""
    replace(path, [(json.dumps(content, indent=2) + "\n").encode()])


def open_regular(path: Path) -> BinaryIO:
    """Open a file of a folder that somebody else may have made, to read it.

    Raises `OSError` for what is no regular file: to open a FIFO that nobody writes to would wait forever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(descriptor, "rb")


def read_json(path: Path) -> Any:
    """What a JSON file says. Raises `OSError`, and `ValueError` for what is not JSON, too long or too deep."""
    with open_regular(path) as file:
        content = file.read(_MAX_JSON_BYTES + 1)
    if len(content) > _MAX_JSON_BYTES:
        raise ValueError(f"it is longer than {_MAX_JSON_BYTES} bytes")
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write(path: Path, fill: Callable[[BinaryIO], None], *, mode: int = PUBLIC, durable: bool = True) -> None:
    """`replace` with what `fill` writes to the file that it is given."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{next(_number)}.part")  # a thread has its own, too
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            fill(file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file, and have it survive a power cut. A line that an earlier cut tore is not continued."""
    is_new = not path.exists()
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PUBLIC), "ab") as file:
        size = os.fstat(file.fileno()).st_size
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        file.write((b"\n" if torn else b"") + line + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_folder(path.parent)


def make_folder(path: Path, *, durable: bool = True) -> None:
    """Make a folder, and those above it, unless they are there; once this returns, they survive a power cut."""
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    except FileNotFoundError:
        make_folder(path.parent, durable=durable)
        path.mkdir(exist_ok=True)
    if durable:
        sync_folder(path.parent)


def sync(fd: int) -> None:
    """Once this returns, what was written to the file survives a power cut."""
    os.fsync(fd)


def sync_folder(folder: Path) -> None:
    """Once this returns, the names in the folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


def move(source: Path, target: Path, *, durable: bool = True) -> None:
    """Give a file another name in its folder; a file that had that name is gone. Sync its content before."""
    os.replace(source, target)
    if durable:
        sync_folder(target.parent)


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that nobody takes it for a valid one; returns where it is now."""
    aside = path.with_name(f"{path.name}.damaged")
    move(path, aside)
    return aside


def remove_parts(folder: Path, name: str = "*") -> None:
    """Remove what a killed `replace` of `name` left in the folder. For the only process that writes that file."""
    for path in folder.glob(f".{name}.*.part"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def lock(path: Path, *, timeout_s: float = 60.0, mode: int = PRIVATE) -> Iterator[int]:
    """Hold the lock of `path`, a file that is made if need be and stays; gives its descriptor. Excludes threads, too.

    Raises `DeadlineExceeded` when another holds it for longer than `timeout_s`.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        _acquire(fd, path, time.monotonic() + timeout_s)
        yield fd
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # closing it is not enough: a child that was forked in between has it, too
        os.close(fd)


def _acquire(fd: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise errors.DeadlineExceeded(
                    f"another process has held {path} for too long; nothing was changed. Is it stopped?"
                ) from None
        time.sleep(_TICK_S)


@contextlib.contextmanager
def hold(path: Path, *, refusal: str) -> Iterator[int]:
    """Hold the lock of `path`; its folder and the file are made if need be. Gives the file's descriptor.

    Forked children do not inherit it: the descriptor is closed there. Raises `ProgramError` with `refusal` at once if
    another holds it, a thread of this process included.
    """
    fd = _open_held(path, refusal)
    _held.add(fd)
    try:
        yield fd
    finally:
        if fd in _held:  # a forked child has closed it already
            _held.remove(fd)
            os.close(fd)  # and with it the lock


def _open_held(path: Path, refusal: str) -> int:
    while True:
        try:
            make_folder(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        except (FileNotFoundError, FileExistsError):
            if _is_in_the_way(path.parent):
                raise
            continue  # another process failed to start, and removed the folder just now
        try:
            _try_to_hold(fd, path, refusal)
            if _is_still(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _is_in_the_way(folder: Path) -> bool:
    """Whether there is a file, or a link to nowhere, where a folder should be; one look, as folders come and go."""
    try:
        mode = os.lstat(folder).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not stat.S_ISDIR(mode) and not folder.is_dir()


def _try_to_hold(fd: int, path: Path, refusal: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise errors.ProgramError(refusal) from None
    except OSError as error:  # some network file systems have no locks
        _LOG.warning("%s cannot be locked (%s): nothing prevents a second process from working there.", path, error)


def _is_still(fd: int, path: Path) -> bool:
    """Whether the path leads to the file that was locked, or to another, made since."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _let_go() -> None:
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)  # a child that outlives its killed parent would keep the lock
