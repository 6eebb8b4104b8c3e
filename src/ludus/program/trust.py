"""Files of a trial that contain code, or name it: whether this user made them, on this machine.

What is made here carries a seal: an HMAC of its content by a key of this user, in `$LUDUS_STATE_DIR`, by default
`~/.local/state/ludus`. A folder that was made elsewhere and copied, unpacked or cloned has no such seal, even though
its files now belong to this user. Owner and mode are checked as well: code in a file that others can write is not run.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from ludus import errors, files
from ludus.rpc import address

__all__ = ["SEAL_BYTES", "check_private", "close_to_others", "is_own", "read_private", "seal"]

SEAL_BYTES = 32
_KEY_FILE = "key"
_KEY_BYTES = 32
_WRITABLE = 0o022  # by the group, by all


def seal(content: bytes) -> bytes:
    """What proves later that this user made `content` on this machine."""
    return hmac.digest(_key(), content, hashlib.sha256)


def is_own(content: bytes, sealed: bytes) -> bool:
    return hmac.compare_digest(seal(content), sealed)


def read_private(path: Path) -> bytes:
    """The content of a file that contains code. Raises `ConfigError` if another user could have written it."""
    with open(path, "rb") as file:
        _check(path, os.fstat(file.fileno()))
        check_private(path.parent)
        return file.read()


def check_private(path: Path) -> None:
    """Raise `ConfigError` if another user could write to `path`, a file or a folder."""
    _check(path, path.stat())


def close_to_others(folder: Path) -> None:
    """Take the right to write in `folder` from other users: a loose umask gives it to the group."""
    mode = folder.stat().st_mode
    if mode & _WRITABLE:
        folder.chmod(mode & 0o7777 & ~_WRITABLE)


def _check(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise errors.ConfigError(
            f"{path} belongs to another user (uid {status.st_uid}), who could change it at any time. The code in it is "
            "not run. If you trust that user, make a copy of your own and serve that, with --trust."
        )
    if status.st_mode & _WRITABLE:
        raise errors.ConfigError(
            f"{path} can be written by other users (mode {status.st_mode & 0o777:03o}), so its code could be anybody's "
            f"and is not run. If nobody has changed it: chmod go-w {path}"
        )


def _key() -> bytes:
    """This user's key, made when it is first needed."""
    folder = _folder()
    path = folder / _KEY_FILE
    if not path.exists():
        with files.lock(folder / ".lock"):
            if not path.exists():
                files.replace(path, [secrets.token_bytes(_KEY_BYTES)], mode=files.PRIVATE)
    check_private(path)
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise errors.ConfigError(
            f"{path} is damaged: it has {len(key)} bytes instead of {_KEY_BYTES}. Remove it; trials with code of their "
            "own that were made before must then be served with --trust once."
        )
    return key


def _folder() -> Path:
    given = os.environ.get("LUDUS_STATE_DIR")
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    folder = Path(given or os.path.join(state, "ludus"))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        if given:
            raise
        return address.runtime_folder()  # no home to write to: what is made here counts as own until a reboot
    check_private(folder)
    return folder
