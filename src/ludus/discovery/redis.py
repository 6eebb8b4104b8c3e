"""`redis://host:port/db`: names in Redis. A lease is a key that Redis itself expires.

    ludus:name:<name>      the record, as JSON; PX is its ttl
    ludus:names            all names in order, so that a subtree is found without walking through the database

A name whose key has expired stays in the order until someone reads past it and takes it out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import SplitResult

from ludus import errors, redis_server
from ludus.discovery.store import Feed, Record, decode, encode
from ludus.discovery.store_names import StoreNames
from ludus.discovery.watching import PollFeed

__all__ = ["RedisNames", "RedisStore"]

_POLL_S = 0.1
_TIMEOUT_S = 2.0
_PREFIX = "ludus:name:"
_INDEX = "ludus:names"

# Each script runs as one step. KEYS: the record's key, the index. What is not a record is as good as absent.
_PUT = """
local current = redis.call('GET', KEYS[1])
if current and ARGV[4] == '0' then
    local known, record = pcall(cjson.decode, current)
    if known and type(record) == 'table' and record.owner ~= ARGV[5] then return 0 end
end
if ARGV[3] == '' then
    redis.call('SET', KEYS[1], ARGV[2])
else
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1
"""

_REMOVE = """
local current = redis.call('GET', KEYS[1])
if not current then return 0 end
if ARGV[2] ~= '' then
    local known, record = pcall(cjson.decode, current)
    if known and type(record) == 'table' and record.owner ~= ARGV[2] then return 0 end
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
"""

_READ = """
local found = {}
local names = redis.call('ZRANGEBYLEX', KEYS[2], '[' .. ARGV[1] .. '/', '(' .. ARGV[1] .. '0')
table.insert(names, ARGV[1])
for _, name in ipairs(names) do
    local record = redis.call('GET', ARGV[2] .. name)
    if record then
        table.insert(found, name)
        table.insert(found, record)
    else
        redis.call('ZREM', KEYS[2], name)
    end
end
return found
"""


class RedisNames(StoreNames):
    """Names in Redis, given its url (`redis://`, or `rediss://` for TLS)."""

    def __init__(self, url: str) -> None:
        super().__init__(RedisStore(url))

    @classmethod
    def from_url(cls, url: SplitResult) -> RedisNames:
        return cls(url.geturl())


class RedisStore:
    """A `Store` in Redis."""

    def __init__(self, url: str) -> None:
        self._client: Any = redis_server.connect(url, timeout_s=_TIMEOUT_S)
        self._put = self._client.register_script(_PUT)
        self._remove = self._client.register_script(_REMOVE)
        self._read = self._client.register_script(_READ)

    def put(self, name: str, record: Record, *, replace: bool) -> bool:
        ttl_ms = "" if record.ttl is None else str(max(1, int(record.ttl * 1000)))
        with _errors():
            args = [name, encode(record), ttl_ms, "1" if replace else "0", record.owner]
            return bool(self._put(keys=[_PREFIX + name, _INDEX], args=args))

    def get(self, name: str) -> str | None:
        with _errors():
            content = self._client.get(_PREFIX + name)
        record = None if content is None else decode(content)
        return None if record is None else record.value

    def read(self, root: str) -> dict[str, str]:
        with _errors():
            found = self._read(keys=[_PREFIX + root, _INDEX], args=[root, _PREFIX])
        records = {
            name.decode(errors="replace"): decode(content)
            for name, content in zip(found[::2], found[1::2], strict=True)
        }
        return {name: record.value for name, record in records.items() if record is not None}

    def remove(self, name: str, *, owner: str | None) -> bool:
        with _errors():
            return bool(self._remove(keys=[_PREFIX + name, _INDEX], args=[name, owner or ""]))

    def clear(self, root: str) -> None:
        for name in self.read(root):
            self.remove(name, owner=None)

    def follow(self, roots: Sequence[str]) -> Feed:
        return PollFeed(_POLL_S)

    def close(self) -> None:
        with _errors():
            self._client.close()


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except redis_server.RedisError as error:
        raise errors.DiscoveryError(f"the names in Redis are out of reach: {error}") from error
