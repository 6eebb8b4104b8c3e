"""The model pool of a league: where all versions of its players are.

    config = settle_pool(config, folder)     # once, in the league's driver: the password goes into a file of its own
    pool = open_pool(config, folder)         # in any of its processes

By default versions are in the folder of the trial. In Redis a league has a prefix of its own, so that several share a
server, and one that is started again under the same name does not find the versions of the one before it.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from pathlib import Path

from ludus.errors import ConfigError
from ludus.league.config import LeagueRunConfig
from ludus.models.pools import place as places
from ludus.models.pools import pool as pools
from ludus.models.pools.place import Place
from ludus.models.pools.pool import ModelPool

__all__ = ["check_pool", "open_pool", "settle_pool"]

_MODELS = "models"
_ANSWERS_WITHIN_S = 5.0


def check_pool(config: LeagueRunConfig, folder: Path | None = None) -> None:
    """Before anything is started or resumed: raises what is wrong with the pool that was asked for.

    `ConfigError` for one that cannot be, or that is not where the versions of the league in `folder` are;
    `Unreachable` or `Unauthorised` for a server that does not answer.
    """
    url = config.league.pool
    if url is not None and not pools.is_redis(url):
        raise ConfigError("pool must be redis://HOST:PORT, or rediss:// for TLS; without it the trial's folder is used")
    place = None if folder is None else places.find_place(folder)
    if url is None and place is not None:
        raise ConfigError(f"the versions of this league are in {place}, and stay there: resume it with its --pool")
    if url is not None and folder is not None and place is None and (folder / _MODELS).is_dir():
        raise ConfigError(
            f"the versions of this league are in {folder / _MODELS}, and stay there: resume it without pool, or begin "
            "another league with --trial NAME"
        )
    if url is not None:
        from ludus.redis_server import RedisServer  # brings the library

        server = RedisServer(places.with_password(url, folder), timeout_s=_ANSWERS_WITHIN_S)
        server.run(lambda client: client.ping())
        server.close()


def settle_pool(config: LeagueRunConfig, folder: Path) -> LeagueRunConfig:
    """Make what the league's processes need to find its pool; the configuration as it can be shown and written."""
    url = config.league.pool
    if url is None:
        return config
    from ludus import redis_server  # brings the library

    known, shown = places.find_place(folder), redis_server.without_password(url)
    if known is not None:
        place = dataclasses.replace(known, url=shown)
    else:
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", folder.name)[:64]
        place = Place(shown, f"{name}-{uuid.uuid4().hex[:12]}")
        url = places.with_password(url, folder)
        pools.open_pool(url, prefix=place.prefix).latest("main")  # made before it is written down
    places.write_place(folder, place, password=redis_server.password_of(url))
    return dataclasses.replace(config, league=dataclasses.replace(config.league, pool=shown))


def open_pool(config: LeagueRunConfig, folder: Path) -> ModelPool:
    """The pool of the league in a trial's folder. Raises `ConfigError` if it was not settled."""
    if config.league.pool is None:
        return pools.open_pool(folder / _MODELS)
    if places.find_place(folder) is None:
        raise ConfigError(
            f"{folder}/league/pool.json says where in Redis the versions of this league are, and is not there. Restore "
            "it."
        )
    return places.open_pool_of(folder)
