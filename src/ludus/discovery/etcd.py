"""`etcd://host:port`: names in etcd, over the JSON gateway that every etcd v3 server has.

A lease here is a lease of etcd's: keeping it alive writes nothing to etcd's history. etcd counts leases in
whole seconds, has a shortest one (two seconds, unless the server's election timeout is set lower) and takes
up to half a second to remove what has lapsed. So a ttl is rounded down to what lapses in time; one that is
too short for the server is lengthened, with a warning that says to what.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import math
import socket
import threading
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import SplitResult

import msgspec

from ludus import errors
from ludus.discovery.http import HttpClient
from ludus.discovery.store import Feed, Record, decode, encode
from ludus.discovery.store_names import StoreNames

__all__ = ["EtcdNames", "EtcdStore"]

log = logging.getLogger(__name__)

_PORT = 2379
_PREFIX = "ludus/names/"
_REVOKE_LAG_S = 0.5
_RETRY_S = 0.2
_MAX_SILENCE_S = 30.0
_MAX_ATTEMPTS = 10

_T = TypeVar("_T")


# What is used of etcd's answers; bytes are base64 in JSON, and whole numbers are strings.
class _Pair(msgspec.Struct):
    key: bytes
    value: bytes = b""
    mod_revision: int = 0


class _Range(msgspec.Struct):
    kvs: list[_Pair] = []


class _Deleted(msgspec.Struct):
    deleted: int = 0


class _TxnPart(msgspec.Struct):
    response_range: _Range | None = None


class _Txn(msgspec.Struct):
    succeeded: bool = False
    responses: list[_TxnPart] = []


class _Lease(msgspec.Struct):
    ID: int = 0
    TTL: int = 0


class _Kept(msgspec.Struct):
    result: _Lease = msgspec.field(default_factory=_Lease)


class EtcdNames(StoreNames):
    """Names in etcd."""

    def __init__(self, host: str = "127.0.0.1", port: int = _PORT) -> None:
        # A lease of whole seconds can be much shorter than the ttl it stands for, so it is renewed more
        # often.
        super().__init__(EtcdStore(host, port), renewals_per_ttl=5)

    @classmethod
    def from_url(cls, url: SplitResult) -> EtcdNames:
        return cls(url.hostname or "127.0.0.1", url.port or _PORT)


class EtcdStore:
    """A `Store` in etcd."""

    def __init__(self, host: str, port: int) -> None:
        self._http = HttpClient(host, port, what="etcd", headers={"Content-Type": "application/json"})
        self._leases: dict[str, tuple[str, int]] = {}  # name → owner, lease
        self._warned = False

    def put(self, name: str, record: Record, *, replace: bool) -> bool:
        owner, lease = self._leases.get(name, ("", 0))
        renewed = owner == record.owner and self._keep(lease)
        if not renewed:
            lease = 0 if record.ttl is None else self._grant(record.ttl)
        key, content = _key(name), encode(record)
        write = {"request_put": {"key": key, "value": content, "lease": str(lease)}}
        absent = {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
        same = {"key": key, "target": "VALUE", "result": "EQUAL", "value": content}
        done = (
            (replace and self._txn([], [write]).succeeded)
            or self._txn([same], [] if renewed else [write]).succeeded
            or self._txn([absent], [write]).succeeded
        )
        if done:
            self._leases[name] = (record.owner, lease)
        return done  # if not, the new lease has nothing attached and lapses by itself

    def get(self, name: str) -> str | None:
        found = self._range(name)
        record = decode(found[0].value) if found else None
        return None if record is None else record.value

    def read(self, root: str) -> dict[str, str]:
        ranges = [{"request_range": each} for each in _ranges([root])]
        found: dict[str, str] = {}
        for part in self._txn([], ranges).responses:
            for pair in part.response_range.kvs if part.response_range else []:
                record = decode(pair.value)
                if record is not None:
                    found[pair.key.decode(errors="replace").removeprefix(_PREFIX)] = record.value
        return found

    def remove(self, name: str, *, owner: str | None) -> bool:
        self._leases.pop(name, None)
        if owner is None:
            return self._post("/v3/kv/deleterange", {"key": _key(name)}, _Deleted).deleted > 0
        for _ in range(_MAX_ATTEMPTS):
            found = self._range(name)
            record = decode(found[0].value) if found else None
            if record is None or record.owner != owner:
                return False
            unchanged = {"key": _key(name), "target": "MOD", "result": "EQUAL"}
            unchanged["mod_revision"] = str(found[0].mod_revision)
            if self._txn([unchanged], [{"request_delete_range": {"key": _key(name)}}]).succeeded:
                return True
        raise errors.DiscoveryError(f"{name!r} keeps changing in etcd, so it was not removed")

    def clear(self, root: str) -> None:
        self._txn([], [{"request_delete_range": each} for each in _ranges([root])])

    def follow(self, roots: Sequence[str]) -> Feed:
        return _WatchFeed(self._http, roots)

    def close(self) -> None:
        self._http.close()

    def _grant(self, ttl: float) -> int:
        lease = self._post("/v3/lease/grant", {"TTL": str(max(1, math.floor(ttl - _REVOKE_LAG_S)))}, _Lease)
        if ttl < lease.TTL + _REVOKE_LAG_S and not self._warned:
            self._warned = True
            log.warning(
                "a ttl of %g s is shorter than this etcd can hold: such names lapse within %g s. "
                "A lower --election-timeout of the server allows shorter leases.",
                ttl,
                lease.TTL + _REVOKE_LAG_S,
            )
        return lease.ID

    def _keep(self, lease: int) -> bool:
        """Renew; a lease that is gone is answered with no time left."""
        return lease == 0 or self._post("/v3/lease/keepalive", {"ID": str(lease)}, _Kept).result.TTL > 0

    def _range(self, name: str) -> list[_Pair]:
        return self._post("/v3/kv/range", {"key": _key(name)}, _Range).kvs

    def _txn(self, compare: list[dict[str, Any]], success: list[dict[str, Any]]) -> _Txn:
        return self._post("/v3/kv/txn", {"compare": compare, "success": success}, _Txn)

    def _post(self, path: str, body: dict[str, Any], answer_type: type[_T]) -> _T:
        answer = self._http.request("POST", path, msgspec.json.encode(body))
        if answer.status != 200:
            text = answer.body.decode(errors="replace")[:500]
            raise errors.DiscoveryError(f"etcd answered {answer.status} to {path}: {text}")
        try:
            return msgspec.json.decode(answer.body, type=answer_type, strict=False)
        except msgspec.MsgspecError as error:
            raise errors.DiscoveryError(f"etcd's answer to {path} makes no sense: {error}") from error


class _WatchFeed:
    """A thread that reads etcd's watch stream; any event, or a restarted stream, means: look again."""

    def __init__(self, client: HttpClient, roots: Sequence[str]) -> None:
        self._client = client
        self._request = b"".join(msgspec.json.encode({"create_request": each}) for each in _ranges(roots))
        self._news = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="ludus-etcd-watch", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        self._news.wait(timeout_s)
        self._news.clear()

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            if self._socket is not None:
                with contextlib.suppress(OSError):  # it broke just now
                    self._socket.shutdown(socket.SHUT_RDWR)
        self._news.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._stream()
            except TimeoutError:
                pass  # nothing for long: perhaps nothing changed, perhaps the connection is dead
            except (OSError, http.client.HTTPException) as error:
                if not self._closed.is_set():
                    log.info("the watch stream of etcd broke; starting again: %s", error)
            self._news.set()
            self._closed.wait(_RETRY_S)

    def _stream(self) -> None:
        connection = self._client.connection()
        try:
            connection.connect()
            connection.sock.settimeout(_MAX_SILENCE_S)
            with self._lock:
                if self._closed.is_set():
                    return
                self._socket = connection.sock
            connection.request("POST", "/v3/watch", self._request)
            response = connection.getresponse()
            while response.readline():
                self._news.set()
        finally:
            with self._lock:
                self._socket = None
            connection.close()


def _key(name: str) -> bytes:
    return (_PREFIX + name).encode()


def _ranges(roots: Sequence[str]) -> list[dict[str, bytes]]:
    """Each root itself, and everything that begins with it and a `/`; `0` is the character after that."""
    at = [{"key": _key(root)} for root in roots]
    return at + [{"key": _key(f"{root}/"), "range_end": _key(f"{root}0")} for root in roots]
