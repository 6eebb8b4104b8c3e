"""Where a trial has the versions of its models: in its folder or, of a league that chose so, in Redis.

    pool = open_pool_of(folder)                        # whatever the trial's folder says
    found = find_place(folder)                         # Place("redis://cache-1:6379/0", "monday-…"); None: its folder
    write_place(folder, found, password="…")           # by who makes the pool

Models that a script makes by `RemoteModel` stay in the folder: their workers map versions from there, and hold them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ludus import errors, files, secret
from ludus.models.pools import pool as pools
from ludus.models.pools.pool import ModelPool

__all__ = ["Place", "expect_in_folder", "find_place", "is_in_redis", "open_pool_of", "with_password", "write_place"]

_MODELS = "models"
_FOLDER = "league"  # leagues alone have a choice
_PLACE, _PASSWORD = "pool.json", "pool.secret"
_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Place:
    """A pool in Redis. `url` has no password: it is in a file of its own, or in the environment."""

    url: str
    prefix: str

    def __str__(self) -> str:
        return f"Redis at {self.url}"


def find_place(folder: Path) -> Place | None:
    """`None`: the trial's own folder. Raises `ConfigError` if what says so cannot be read."""
    path = folder / _FOLDER / _PLACE
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        return Place(str(saved["url"]), str(saved["prefix"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.ConfigError(
            f"{path} says where in Redis the versions of this trial are, and cannot be read: {error!r}. Restore it."
        ) from None


def is_in_redis(folder: Path) -> bool:
    """By the names of files: whatever `find_place` finds, or cannot read."""
    return (folder / _FOLDER / _PLACE).is_file()


def write_place(folder: Path, place: Place, *, password: str | None = None) -> None:
    """For all who open the trial later. The password goes into a file that only its user can read."""
    files.make_folder(folder / _FOLDER)
    if password:
        files.replace(folder / _FOLDER / _PASSWORD, [password.encode()], mode=files.PRIVATE)
    if find_place(folder) != place:
        files.replace_json(folder / _FOLDER / _PLACE, asdict(place))


def with_password(url: str, folder: Path | None) -> str:
    """The URL with the password of the trial's pool, if it has one and the URL has none."""
    from ludus import redis_server  # brings the library

    path = None if folder is None else folder / _FOLDER / _PASSWORD
    if path is None or redis_server.password_of(url) is not None or not path.exists():
        return url
    return redis_server.with_password(url, secret.read(path, "password of the league's pool"))


def open_pool_of(folder: Path, *, timeout_s: float | None = None) -> ModelPool:
    """The pool of the trial in this folder. `timeout_s`: how long a call is tried while a server is gone."""
    place = find_place(folder)
    if place is None:
        return pools.open_pool(folder / _MODELS)
    url = with_password(place.url, folder)
    limit_s = _TIMEOUT_S if timeout_s is None else timeout_s
    return pools.open_pool(url, prefix=place.prefix, create=False, timeout_s=limit_s)


def expect_in_folder(folder: Path, model: str) -> None:
    """Raise `ConfigError` if the trial's pool has this model elsewhere; what a server raises that is gone."""
    place = find_place(folder)
    if place is None:
        return
    pool = open_pool_of(folder)
    try:
        is_there = model in pool.models()
    finally:
        pool.close()
    if is_there:
        raise errors.ConfigError(
            f"the versions of {model!r} are in {place}, where nobody can hold one while it is played: neither a "
            f"RemoteModel nor a clone can run them. ludus.subscribe({model!r}, …) follows them; give a model of your "
            "own another name"
        )
