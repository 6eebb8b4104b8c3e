"""Names in memory, with leases that lapse by time: all of `memory://`, and the heart of the registry."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ludus.clock import SYSTEM, Clock
from ludus.discovery import names as spelling
from ludus.discovery.store import Record

__all__ = ["Table", "TableFeed"]

_NUM_REMEMBERED = 1024


@dataclass(frozen=True)
class _Row:
    record: Record
    lapses_at: float | None


class Table:
    """A `Store` in memory. Each visible change (not a renewal) makes a new `version`.

    A lease that has lapsed is never seen again; it is counted as a change by the first operation after it.
    """

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._rows: dict[str, _Row] = {}
        self._version = 0
        self._changes: deque[tuple[int, str]] = deque(maxlen=_NUM_REMEMBERED)
        self.changed = threading.Condition()  # held over every operation, notified of every change
        self._next_lapse = float("inf")  # no lease lapses before; may be too early, never too late

    def put(self, name: str, record: Record, *, replace: bool) -> bool:
        """As `Store.put`."""
        with self.changed:
            self._lapse()
            row = self._rows.get(name)
            if row is not None and row.record.owner != record.owner and not replace:
                return False
            lapses_at = None if record.ttl is None else self._clock.now() + record.ttl
            self._rows[name] = _Row(record, lapses_at)
            if lapses_at is not None:
                self._next_lapse = min(self._next_lapse, lapses_at)
            if row is None or row.record != record:
                self._note(name)
            return True

    def get(self, name: str) -> str | None:
        """As `Store.get`."""
        with self.changed:
            self._lapse()
            row = self._rows.get(name)
            return None if row is None else row.record.value

    def read(self, root: str) -> dict[str, str]:
        """As `Store.read`."""
        with self.changed:
            self._lapse()
            return {name: row.record.value for name, row in self._rows.items() if spelling.is_at_or_below(name, root)}

    def remove(self, name: str, *, owner: str | None) -> bool:
        """As `Store.remove`."""
        with self.changed:
            self._lapse()
            row = self._rows.get(name)
            if row is None or owner not in (None, row.record.owner):
                return False
            del self._rows[name]
            self._note(name)
            return True

    def clear(self, root: str) -> None:
        """As `Store.clear`."""
        with self.changed:
            self._lapse()
            for name in [name for name in self._rows if spelling.is_at_or_below(name, root)]:
                del self._rows[name]
                self._note(name)

    def __len__(self) -> int:
        with self.changed:
            self._lapse()
            return len(self._rows)

    def follow(self, roots: Sequence[str]) -> TableFeed:
        """As `Store.follow`."""
        return TableFeed(self, roots)

    def close(self) -> None:
        """Nothing is held open: a table ends with its last user."""

    @property
    def version(self) -> int:
        """How many changes there have been."""
        with self.changed:
            self._lapse()
            return self._version

    def has_changed(self, roots: Sequence[str], *, since: int) -> bool:
        """Whether a name at or below `roots` has changed since that version, or that is too long ago."""
        with self.changed:
            self._lapse()
            if since == self._version:
                return False
            if since > self._version or since < self._changes[0][0] - 1:
                return True
            return any(
                version > since and any(spelling.is_at_or_below(name, root) for root in roots)
                for version, name in self._changes
            )

    def seconds_to_lapse(self) -> float:
        """In how many seconds a lease may lapse; infinite when there is none."""
        with self.changed:
            return max(0.0, self._next_lapse - self._clock.now())

    def _note(self, name: str) -> None:
        self._version += 1
        self._changes.append((self._version, name))
        self.changed.notify_all()

    def _lapse(self) -> None:
        now = self._clock.now()
        if now < self._next_lapse:
            return
        for name in [name for name, row in self._rows.items() if row.lapses_at is not None and row.lapses_at <= now]:
            del self._rows[name]
            self._note(name)
        self._next_lapse = min(
            (row.lapses_at for row in self._rows.values() if row.lapses_at is not None), default=float("inf")
        )


class TableFeed:
    """A feed that hears of a change at once."""

    def __init__(self, table: Table, roots: Sequence[str]) -> None:
        self._table = table
        self._roots = roots
        self._seen = table.version
        self._closed = False

    def wait(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._table.changed:
            while not self._closed and not self._table.has_changed(self._roots, since=self._seen):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._table.changed.wait(min(left, self._table.seconds_to_lapse()))
            self._seen = self._table.version

    def close(self) -> None:
        with self._table.changed:
            self._closed = True
            self._table.changed.notify_all()
