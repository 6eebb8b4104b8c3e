"""What a backend has to do: a `Store` of records, and a `Feed` that says when to look again.

`StoreNames` makes the whole of `core.Names` out of a store, so leases that are kept alive (`keepalive.py`)
and watches that call back (`watching.py`) are written once, for all backends.

A record carries the token of the `add` that wrote it. That makes every write safe to repeat: `put` succeeds
if the record already there is its own, so renewing a lease, restoring a lost one and trying again after a
broken connection are the same operation, and nobody removes what somebody else has put there since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

__all__ = ["Feed", "Record", "Store", "decode", "encode"]


class Record(msgspec.Struct, frozen=True):
    """What is kept under a name."""

    value: str
    owner: str  # the token of the `add` that wrote it: no two are the same
    ttl: float | None = None  # None: it stays until deleted


def encode(record: Record) -> bytes:
    """A record as JSON, for backends that keep bytes."""
    return msgspec.json.encode(record)


def decode(content: bytes) -> Record | None:
    """The inverse of `encode`; `None` for anything else, such as a torn file or another program's key."""
    try:
        return msgspec.json.decode(content, type=Record)
    except msgspec.MsgspecError:
        return None


class Feed(Protocol):
    """Says when it is worth looking at some names again."""

    def wait(self, timeout_s: float) -> None:
        """Return once a name may have changed since the last `wait`, after `timeout_s`, or when closed."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """What a backend has to do, from any thread. Raises `DiscoveryError` when it is out of reach."""

    def put(self, name: str, record: Record, *, replace: bool) -> bool:
        """Write `record`, to lapse `record.ttl` seconds from now. Atomic.

        Unless `replace`, a live record of another owner stays as it is and the answer is `False`. A record of
        the same owner is renewed.
        """
        ...

    def get(self, name: str) -> str | None:
        """The value of one live record."""
        ...

    def read(self, root: str) -> dict[str, str]:
        """The live records at and below `root`: name → value, in any order."""
        ...

    def remove(self, name: str, *, owner: str | None) -> bool:
        """Remove a live record, if it is `owner`'s (`None`: whosever it is); says whether it did. Atomic."""
        ...

    def clear(self, root: str) -> None:
        """Remove every record at and below `root`."""
        ...

    def follow(self, roots: Sequence[str]) -> Feed:
        """A feed for the names at and below `roots`. The caller closes it."""
        ...

    def close(self) -> None: ...
