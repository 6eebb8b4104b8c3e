"""`consul://host:port`: names in Consul's key-value store.

Consul's own leases (sessions) last at least ten seconds and may take twice as long to lapse. So a record here
carries the time at which it lapses, and renewing it writes a later one; readers take a lapsed record as
absent, and remove it when it has been so for a while. Times are the Consul server's, so that the hosts'
clocks need not agree. Every write is a check-and-set.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult, quote, unquote

import msgspec

from ludus import errors
from ludus.discovery import names as spelling
from ludus.discovery.http import Answer, HttpClient
from ludus.discovery.server_clock import ServerClock
from ludus.discovery.store import Feed, Record
from ludus.discovery.store_names import StoreNames
from ludus.discovery.watching import PollFeed

__all__ = ["ConsulNames", "ConsulStore"]

_PORT = 8500
_POLL_S = 0.15
_PREFIX = "ludus/names/"
_SWEEP_AFTER_S = 60.0
_MAX_ATTEMPTS = 20


class _Stamped(Record, frozen=True):
    lapses_at: float | None = None  # by the server's clock


class _Entry(msgspec.Struct):
    """One key as Consul tells of it; its bytes are base64 in JSON."""

    Key: str
    ModifyIndex: int
    Value: bytes | None = None

    @property
    def name(self) -> str:
        return self.Key.removeprefix(_PREFIX)

    @property
    def record(self) -> _Stamped | None:
        """What it holds, lapsed or not; `None` if it is not a record of ours."""
        try:
            return msgspec.json.decode(self.Value or b"", type=_Stamped)
        except msgspec.MsgspecError:
            return None


class ConsulNames(StoreNames):
    """Names in Consul; a `token` is sent with every request, for servers that ask for one."""

    def __init__(self, host: str = "127.0.0.1", port: int = _PORT, *, token: str | None = None) -> None:
        super().__init__(ConsulStore(host, port, token=token))

    @classmethod
    def from_url(cls, url: SplitResult) -> ConsulNames:
        token = unquote(url.password) if url.password else None
        return cls(url.hostname or "127.0.0.1", url.port or _PORT, token=token)


class ConsulStore:
    """A `Store` in Consul."""

    def __init__(self, host: str, port: int, *, token: str | None = None) -> None:
        headers = {"X-Consul-Token": token} if token else {}
        self._http = HttpClient(host, port, what="Consul", headers=headers)
        self._clock = ServerClock()

    def put(self, name: str, record: Record, *, replace: bool) -> bool:
        for _ in range(_MAX_ATTEMPTS):
            entry = self._entry(name)
            current = self._live(entry)
            if current is not None and current.owner != record.owner and not replace:
                return False
            lapses_at = None if record.ttl is None else self._clock.now() + record.ttl
            stamped = _Stamped(value=record.value, owner=record.owner, ttl=record.ttl, lapses_at=lapses_at)
            if self._check_and("PUT", name, entry, msgspec.json.encode(stamped)):
                return True
        raise errors.DiscoveryError(f"{name!r} keeps changing in Consul, so it was not written")

    def get(self, name: str) -> str | None:
        record = self._live(self._entry(name))
        return None if record is None else record.value

    def read(self, root: str) -> dict[str, str]:
        found: dict[str, str] = {}
        # Consul's prefixes know no parts: for `a` it also tells of `ab`.
        for entry in self._entries(f"{_path(root)}?recurse"):
            if not spelling.is_at_or_below(entry.name, root):
                continue
            record = self._live(entry)
            if record is not None:
                found[entry.name] = record.value
            elif self._is_litter(entry):
                self._check_and("DELETE", entry.name, entry)
        return found

    def remove(self, name: str, *, owner: str | None) -> bool:
        for _ in range(_MAX_ATTEMPTS):
            entry = self._entry(name)
            current = self._live(entry)
            if current is None or owner not in (None, current.owner):
                return False
            if self._check_and("DELETE", name, entry):
                return True
        raise errors.DiscoveryError(f"{name!r} keeps changing in Consul, so it was not removed")

    def clear(self, root: str) -> None:
        self._request("DELETE", _path(root))
        self._request("DELETE", f"{_path(root)}/?recurse")

    def follow(self, roots: Sequence[str]) -> Feed:
        return PollFeed(_POLL_S)

    def close(self) -> None:
        self._http.close()

    def _live(self, entry: _Entry | None) -> _Stamped | None:
        record = None if entry is None else entry.record
        if record is None or (record.lapses_at is not None and record.lapses_at <= self._clock.now()):
            return None
        return record

    def _is_litter(self, entry: _Entry) -> bool:
        record = entry.record
        if record is None or record.lapses_at is None:
            return False
        return record.lapses_at + _SWEEP_AFTER_S <= self._clock.now()

    def _entry(self, name: str) -> _Entry | None:
        entries = self._entries(_path(name))
        return entries[0] if entries else None

    def _entries(self, path: str) -> list[_Entry]:
        answer = self._request("GET", path)
        if answer.status == 404:
            return []
        try:
            return msgspec.json.decode(answer.body, type=list[_Entry])
        except msgspec.MsgspecError as error:
            raise errors.DiscoveryError(f"Consul's answer to {path} makes no sense: {error}") from error

    def _check_and(self, method: str, name: str, entry: _Entry | None, body: bytes | None = None) -> bool:
        """PUT or DELETE, if the key is still as in `entry`; says whether it was."""
        index = 0 if entry is None else entry.ModifyIndex
        return self._request(method, f"{_path(name)}?cas={index}", body).body.strip() == b"true"

    def _request(self, method: str, path: str, body: bytes | None = None) -> Answer:
        answer = self._http.request(method, path, body)
        self._clock.note(answer.headers.get("Date"), sent_at=answer.sent_at, received_at=answer.received_at)
        if answer.status not in (200, 404):
            text = answer.body.decode(errors="replace")[:500]
            raise errors.DiscoveryError(f"Consul answered {answer.status} to {method} {path}: {text}")
        return answer


def _path(name: str) -> str:
    return f"/v1/kv/{quote(_PREFIX + name)}"
