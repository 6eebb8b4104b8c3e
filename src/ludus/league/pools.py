"""The model pool of a league: where all versions of its players are.

    config = settle_pool(config, folder)     # once, in the league's driver: the password goes into a file of its own
    pool = open_pool(config, folder)         # in any of its processes

By default versions are in the folder of the trial. In Redis a league has a prefix of its own, so that several share a
server, and one that is started again under the same name does not find the versions of the one before it.
"""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
from pathlib import Path

from ludus import files, secret
from ludus.errors import ConfigError
from ludus.league.config import LeagueRunConfig
from ludus.league.folder import FOLDER
from ludus.models.pools import pool as pools
from ludus.models.pools.pool import ModelPool

__all__ = ["check_pool", "open_pool", "settle_pool"]

_MODELS = "models"
_PLACE, _PASSWORD = "pool.json", "pool.secret"
_ANSWERS_WITHIN_S = 5.0


def check_pool(config: LeagueRunConfig, folder: Path | None = None) -> None:
    """Before anything is started or resumed: raises what is wrong with the pool that was asked for.

    `ConfigError` for one that cannot be, or that is not where the versions of the league in `folder` are;
    `Unreachable` or `Unauthorised` for a server that does not answer.
    """
    url = config.league.pool
    if url is not None and not pools.is_redis(url):
        raise ConfigError("pool must be redis://HOST:PORT, or rediss:// for TLS; without it the trial's folder is used")
    if url is not None and folder is not None and _is_in_folder(folder):
        raise ConfigError(
            f"the versions of this league are in {folder / _MODELS}, and stay there: resume it without pool, or begin "
            "another league with --trial NAME"
        )
    if url is not None:
        from ludus.redis_server import RedisServer  # brings the library

        server = RedisServer(_with_password(url, folder), timeout_s=_ANSWERS_WITHIN_S)
        server.run(lambda client: client.ping())
        server.close()


def settle_pool(config: LeagueRunConfig, folder: Path) -> LeagueRunConfig:
    """Make what the league's processes need to find its pool; the configuration as it can be shown and written."""
    url = config.league.pool
    if url is None:
        return config
    from ludus import redis_server  # brings the library

    files.make_folder(folder / FOLDER)
    password = redis_server.password_of(url)
    if password:
        files.replace(folder / FOLDER / _PASSWORD, [password.encode()], mode=files.PRIVATE)
    league = dataclasses.replace(config.league, pool=redis_server.without_password(url))
    config = dataclasses.replace(config, league=league)
    if not (folder / FOLDER / _PLACE).exists():
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", folder.name)[:64]
        prefix = f"{name}-{uuid.uuid4().hex[:12]}"
        pools.open_pool(_with_password(url, folder), prefix=prefix).latest("main")  # made before it is written down
        files.replace_json(folder / FOLDER / _PLACE, {"prefix": prefix})
    return config


def open_pool(config: LeagueRunConfig, folder: Path) -> ModelPool:
    """The pool of the league in a trial's folder. Raises `ConfigError` if it was not settled."""
    url = config.league.pool
    if url is None:
        return pools.open_pool(folder / _MODELS)
    path = folder / FOLDER / _PLACE
    try:
        prefix = str(json.loads(path.read_text(encoding="utf-8"))["prefix"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} says where in Redis the versions of this league are, and cannot be read: {error!r}. Restore it."
        ) from None
    return pools.open_pool(_with_password(url, folder), prefix=prefix, create=False)


def _is_in_folder(folder: Path) -> bool:
    return (folder / _MODELS).is_dir() and not (folder / FOLDER / _PLACE).exists()


def _with_password(url: str, folder: Path | None) -> str:
    """The URL with the league's password, if it has one and the URL has none."""
    from ludus import redis_server  # brings the library

    path = None if folder is None else folder / FOLDER / _PASSWORD
    if path is None or redis_server.password_of(url) is not None or not path.exists():
        return url
    return redis_server.with_password(url, secret.read(path, "password of the league's pool"))
