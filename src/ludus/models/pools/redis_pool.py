"""A model pool in Redis: a server of memory that the hosts of a league share.

    {P}                  the pool itself: made when it was first opened, so that a server that lost it is noticed
    {P}:models           set: the names
    {P}:numbers:MODEL    sorted set: the numbers of its versions
    {P}:counts:MODEL     hash: published, rewinds, last (the highest number ever)
    {P}:v:MODEL:NUMBER   hash: one version. record (MessagePack), digest, and its frames, in parts of at most 16 MiB
    {P}:part:ID          a version that is being written; it expires when its writer has died
    {P}:done:ID          the number that a writer's version got, for a while: a call that is repeated publishes once

P is `ludus:pool:PREFIX` (in braces, so that a cluster keeps a pool on one node). A version is written under a name of
its own and becomes visible by one script, which renames it: it is whole or not there.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ludus import data, errors, redis_server
from ludus.data.digest import digest as digest_of
from ludus.models.pools import redis_scripts
from ludus.models.pools.pool import NEWEST, Weights, refuse_newest
from ludus.models.versions.changes import Changes, at_or_before
from ludus.models.versions.file import Version, check_weights
from ludus.models.versions.store import check_model

try:
    import xxhash
except ImportError:
    raise errors.MissingExtra("xxhash", extra="redis") from None

__all__ = ["RedisPool"]

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PART_BYTES = 16 << 20
_CALL_BYTES = 64 << 20  # of one reply
_LIMITS = data.Limits(max_leaves=10_000_000, max_bytes=1 << 40)
_NUM_OWN_FIELDS = 2  # record, digest
_EXPIRE_MS = 60_000
_MAX_RACES = 100

_log = logging.getLogger(__name__)


class _Record(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The field `record` of a version. It holds no number: that is given when it becomes visible."""

    digest: str  # XXH3-128 of the weights
    nbytes: int
    created: float
    frames: list[int]  # bytes of each


@dataclass(frozen=True)
class _Part:
    """A field of a version's hash: some bytes of one frame."""

    field: str
    frame: int
    start: int
    stop: int


class RedisPool:
    """A `ModelPool` at `redis://HOST:PORT`; `rediss://` for TLS, see `ludus.redis_server` for passwords.

    prefix: what tells this pool from others on the server. create: make it if it is not there; else `DataError`.
    timeout_s: how long a call is tried while the server is gone, is restarted, or is stopped.

    Versions are hashed by XXH3-128, which notices damage; it is no protection from those who may write to the server.
    """

    look_every_s = 0.05

    def __init__(self, url: str, *, prefix: str = "default", create: bool = True, timeout_s: float = 10.0) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise errors.ConfigError(f"{prefix!r} cannot be a prefix: letters, digits, '_', '.' and '-', at most 128")
        self._server = redis_server.RedisServer(url, timeout_s=timeout_s)
        self.prefix = prefix
        self._pool = f"{{ludus:pool:{prefix}}}"
        self._create = create
        self._is_open = False

    # -- reading ------------------------------------------------------------------------------------------------

    def latest(self, model: str) -> int | None:
        key = self._numbers(model)
        self._open()
        found = self._run(lambda client: client.zrange(key, -1, -1))
        if not found:
            self._expect_pool()
        return int(found[0]) if found else None

    def numbers(self, model: str) -> list[int]:
        key = self._numbers(model)
        self._open()
        found = self._run(lambda client: client.zrange(key, 0, -1))
        if not found:
            self._expect_pool()
        return [int(number) for number in found]

    def newest(self, model: str, most: int) -> list[Version]:
        numbers = self.numbers(model)
        numbers = numbers[max(0, len(numbers) - most) :][::-1]

        def read(client: Any) -> Any:
            with client.pipeline(transaction=False) as calls:
                for number in numbers:
                    calls.hget(self._version(model, number), "record")
                return calls.execute(raise_on_error=False)

        found = []
        for number, packed in zip(numbers, self._run(read), strict=True):
            try:
                record = msgspec.msgpack.decode(packed, type=_Record)
            except (msgspec.MsgspecError, TypeError):  # damaged, which `get` says, or removed since
                continue
            found.append(_version(model, number, record))
        return found

    def models(self) -> list[str]:
        self._open()
        return sorted(name.decode() for name in self._run(lambda client: client.smembers(f"{self._pool}:models")))

    def num_published(self, model: str) -> int:
        return self._count(model, "published")

    def num_rewinds(self, model: str) -> int:
        return self._count(model, "rewinds")

    def _count(self, model: str, name: str) -> int:
        key = self._counts(model)
        return int(self._run(lambda client: client.hget(key, name)) or 0)

    def changes(self, model: str) -> Changes:
        keys = [self._counts(model), self._numbers(model)]
        self._open()
        published, rewinds, found = self._run(lambda client: client.eval(redis_scripts.CHANGES, len(keys), *keys))
        if not found:
            self._expect_pool()
        return Changes(
            num_published=int(published),
            num_rewinds=int(rewinds),
            numbers=tuple(int(number) for number in found),
        )

    def attend(self, model: str) -> None:
        """Nothing to do: nothing is removed here unless somebody asks."""

    def at_or_before(self, model: str, step: int = NEWEST) -> int:
        return at_or_before(model, self.numbers(model), step)

    def get(self, model: str, number: int = NEWEST) -> tuple[Version, Weights]:
        check_model(model)
        for _ in range(_MAX_RACES):
            wanted = self.at_or_before(model) if number == NEWEST else int(number)
            try:
                found = self._read(model, wanted)
            except errors.DataError:
                try:  # once more: what is damaged in the server is damaged then, too
                    found = self._read(model, wanted)
                except errors.DataError as error:
                    damage = self._set_aside(model, wanted, error)
                    if number == NEWEST and self.numbers(model):
                        continue
                    raise damage from None
            if found is not None:
                return found
            if number != NEWEST or self.latest(model) == wanted:
                break
        raise errors.DataError(self._missing(model, wanted))

    def _missing(self, model: str, number: int) -> str:
        there = ", ".join(map(str, self.numbers(model)[-12:])) or "none"
        return f"{model!r} has no version {number} in {self} (any more); the newest there: {there}."

    def _read(self, model: str, number: int) -> tuple[Version, Weights] | None:
        """`None` if it is not there, or was removed on the way. Raises `DataError` for damage."""
        key = self._version(model, number)

        def read(client: Any) -> Any:
            with client.pipeline(transaction=False) as calls:
                return calls.hlen(key).hget(key, "record").execute()

        num_fields, packed = self._run(read)
        if num_fields == 0:
            return None
        if packed is None:
            raise errors.DataError("its record is missing")
        try:
            record = msgspec.msgpack.decode(packed, type=_Record)
        except msgspec.MsgspecError as error:
            raise errors.DataError(f"its record is malformed: {error}") from None
        if any(size < 0 for size in record.frames) or _num_parts(record.frames) != num_fields - _NUM_OWN_FIELDS:
            raise errors.DataError("parts of it are missing, or its record says how long it is, wrongly")
        frames = self._read_frames(key, record.frames)
        if frames is None:
            return None
        weights = data.decode(frames, limits=_LIMITS)
        if not isinstance(weights, dict) or not all(isinstance(array, np.ndarray) for array in weights.values()):
            raise errors.DataError("its content is not arrays by name")
        if digest_of(weights, xxhash.xxh3_128) != record.digest:
            raise errors.DataError(f"its digest is not {record.digest[:12]}")
        return _version(model, number, record), weights

    def _read_frames(self, key: str, sizes: Sequence[int]) -> list[memoryview | bytes] | None:
        """A frame of one part is the reply itself; the parts of larger ones are put together."""
        frames: list[memoryview | bytes] = [b""] * len(sizes)
        joined: dict[int, NDArray[np.uint8]] = {}
        for parts in _calls(_parts(sizes), _CALL_BYTES):
            found = self._run(lambda client, parts=parts: client.hmget(key, [part.field for part in parts]))
            if any(content is None for content in found):
                if not self._run(lambda client: client.exists(key)):
                    return None
                raise errors.DataError("a part of it is missing")
            for part, content in zip(parts, found, strict=True):
                if len(content) != part.stop - part.start:
                    raise errors.DataError(f"frame {part.frame} is not as long as its record says")
                if len(content) == sizes[part.frame]:
                    frames[part.frame] = content
                    continue
                if part.frame not in joined:
                    joined[part.frame] = np.empty(sizes[part.frame], np.uint8)
                joined[part.frame][part.start : part.stop] = np.frombuffer(content, np.uint8)
        for frame, memory in joined.items():
            frames[frame] = memory.data.toreadonly()
        return frames

    def _set_aside(self, model: str, number: int, error: errors.DataError) -> errors.DataError:
        """Take a damaged version out of use; the error to raise if it was asked for."""
        key = self._version(model, number)
        keys = [key, f"{key}:damaged", self._numbers(model), self._counts(model)]
        if self._run(lambda client: client.eval(redis_scripts.SET_ASIDE, len(keys), *keys, number, _EXPIRE_MS * 60)):
            _log.warning("version %d of %r in %s is damaged: %s. It is not used.", number, model, self, error)
        return errors.DataError(
            f"version {number} of {model!r} in {self} is damaged and cannot be used: {error}. It is kept for an hour "
            f"as {key}:damaged; put those weights again, or use another version."
        )

    # -- writing ------------------------------------------------------------------------------------------------

    def put(self, model: str, weights: Mapping[str, NDArray[Any]], *, number: int | None = None) -> Version:
        check_model(model)
        if number is not None and (isinstance(number, bool) or number < 0):
            raise errors.DataError(f"version {number} of {model!r}: numbers begin at 0")
        nbytes = check_weights(weights)
        arrays = {name: np.asarray(array) for name, array in weights.items()}
        frames = data.encode(dict(arrays), limits=_LIMITS)
        record = _Record(
            digest=digest_of(dict(arrays), xxhash.xxh3_128),
            nbytes=nbytes,
            created=time.time(),
            frames=[data.nbytes([frame]) for frame in frames],
        )
        self._open()
        writer = uuid.uuid4().hex
        part = f"{self._pool}:part:{writer}"
        try:
            found, other = self._run(lambda client: self._write(client, model, number, record, frames, writer))
        except errors.Unreachable:
            raise  # the server removes it, if it comes back
        except BaseException:
            self._forget(part)
            raise
        if other:
            raise errors.DataError(
                f"version {int(found)} of {model!r} is {other.decode()[:12]} already, and versions never change; "
                f"{record.digest[:12]} was not put. Give it another number."
            )
        return _version(model, int(found), record)

    def _write(
        self,
        client: Any,
        model: str,
        number: int | None,
        record: _Record,
        frames: Sequence[bytes | memoryview],
        writer: str,
    ) -> tuple[bytes, bytes]:
        """All its parts, then the script that shows it. Made twice, it is as if it had been made once."""
        part = f"{self._pool}:part:{writer}"
        parts = _parts(record.frames)
        views = [memoryview(frame).cast("B") for frame in frames]
        first = {"record": msgspec.msgpack.encode(record), "digest": record.digest}
        with client.pipeline(transaction=False) as calls:
            calls.eval(redis_scripts.BEGIN, 1, part, _EXPIRE_MS, *[word for pair in first.items() for word in pair])
            for group in _calls(parts, _PART_BYTES):
                content = [word for each in group for word in (each.field, views[each.frame][each.start : each.stop])]
                calls.execute_command("HSET", part, *content)
                calls.pexpire(part, _EXPIRE_MS)
                calls.execute()  # one message of at most 16 MiB or so: the server serves others in between
            keys = [
                *(part, self._numbers(model), self._counts(model), f"{self._pool}:done:{writer}", self._pool),
                f"{self._pool}:models",
            ]
            wanted = "" if number is None else number
            num_fields = _NUM_OWN_FIELDS + len(parts)
            calls.eval(redis_scripts.COMMIT, len(keys), *keys, wanted, record.digest, num_fields, model, _EXPIRE_MS)
            found, other = calls.execute()[-1]
        return found, other

    def _forget(self, part: str) -> None:
        """Remove what was written of a version that will not be; the server does so by itself if it cannot be asked."""
        try:
            self._server.once(lambda client: client.unlink(part))
        except (redis_server.RedisError, errors.LudusError) as error:
            _log.debug("%s is left to expire: %s", part, error)

    def remove(self, model: str, number: int) -> None:
        keys = [self._version(model, number), self._numbers(model)]
        self._open()
        if self._run(lambda client: client.eval(redis_scripts.REMOVE, len(keys), *keys, number)):
            refuse_newest(model, number, number)

    # -- the server ---------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Make the pool, or expect it to be there, before the first call."""
        if self._is_open:
            return
        if self._create:
            self._run(lambda client: client.set(self._pool, time.time(), nx=True))
        else:
            self._expect_pool()
        self._is_open = True

    def _expect_pool(self) -> None:
        """Where nothing is found: the server may have lost it all."""
        if not self._run(lambda client: client.exists(self._pool)):
            raise self._lost()

    def _lost(self) -> errors.DataError:
        return errors.DataError(
            f"{self} is gone: the server was started without its data, emptied, or is another one. Restore its data, "
            "or begin again with another prefix or trial; numbers of versions would come back with other weights."
        )

    def _run(self, call: Any) -> Any:
        try:
            return self._server.run(call)
        except redis_server.ScriptError as error:
            match (text := redis_server.text_of(error)).split(" ")[0]:
                case "LOST":
                    raise self._lost() from None
                case "TORN":
                    raise errors.DataError(
                        f"what was written to {self} was gone before it was whole: it took over a minute, or somebody "
                        "removed it. It was not put; try again."
                    ) from None
                case _:
                    raise errors.DataError(f"{self} refuses, and nothing was changed: {text}") from None

    def _numbers(self, model: str) -> str:
        check_model(model)
        return f"{self._pool}:numbers:{model}"

    def _counts(self, model: str) -> str:
        check_model(model)
        return f"{self._pool}:counts:{model}"

    def _version(self, model: str, number: int) -> str:
        check_model(model)
        return f"{self._pool}:v:{model}:{int(number)}"

    def close(self) -> None:
        self._server.close()

    def __repr__(self) -> str:
        return f"RedisPool({self._server.url!r}, prefix={self.prefix!r})"


def _version(model: str, number: int, record: _Record) -> Version:
    return Version(model=model, number=number, digest=record.digest, nbytes=record.nbytes, created=record.created)


def _num_parts(sizes: Sequence[int]) -> int:
    """Of `_parts`, though nobody should make as many as a damaged record asks for."""
    return sum(max(1, -(-size // _PART_BYTES)) for size in sizes)


def _parts(sizes: Sequence[int]) -> list[_Part]:
    return [
        _Part(f"{frame}.{start // _PART_BYTES}", frame, start, min(start + _PART_BYTES, size))
        for frame, size in enumerate(sizes)
        for start in range(0, max(size, 1), _PART_BYTES)
    ]


def _calls(parts: Sequence[_Part], max_bytes: int) -> Iterator[list[_Part]]:
    """The parts in groups of at most so many bytes, or of one."""
    group: list[_Part] = []
    size = 0
    for part in parts:
        if group and size + part.stop - part.start > max_bytes:
            yield group
            group, size = [], 0
        group.append(part)
        size += part.stop - part.start
    if group:
        yield group
