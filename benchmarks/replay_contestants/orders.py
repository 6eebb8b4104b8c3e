"""What every contestant's process shares: the orders that it takes, and the loop that is timed.

serve_orders(open_table, "cpprb")      an in-process contestant, or a client of a service
serve_server(start_service, "cpprb")   the process of a service

Needs Python 3.11 and NumPy of any version; each contestant has a virtual environment of its own.
"""

from __future__ import annotations

import itertools
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from items import CAPACITY, INSERTED, SAMPLED, Batch, check, make_batches

sys.path.append(str(Path(__file__).resolve().parents[1]))

from gateway_contestants.announce import Announcer


class Unavailable(Exception):
    """The library cannot do this here; the message says why."""


class Replay(Protocol):
    """A table at its capacity, or a connection to one."""

    def prepare(self, batch: Batch) -> Any:
        """The batch as the library wants it; not timed."""

    def insert(self, prepared: Any) -> None:
        """INSERTED items. May leave some under way."""

    def finish_inserts(self) -> None:
        """Returns when every item of the inserts before is in the table; timed."""

    def sample(self, priorities: np.ndarray | None) -> Any:
        """SAMPLED items, copied into arrays. With priorities: gives them to the items that were drawn."""

    def fields(self, sample: Any) -> Batch:
        """The fields of a sample, by the names of `items.FIELDS`; not timed."""


class Timed:
    """The timed loops over a contestant; the same for Ludus and for its peers."""

    def __init__(self, replay: Replay, *, size: str, kind: str) -> None:
        self._replay = replay
        self._size = size
        self._prepared = itertools.cycle([replay.prepare(batch) for batch in make_batches(size)])
        rng = np.random.default_rng(2)
        new = [rng.random(SAMPLED) + 1e-3 for _ in range(16)] if kind == "prioritised" else [None]
        self._priorities = itertools.cycle(new)

    def fill(self) -> None:
        """To the capacity, so that every later insert has to remove an item."""
        for _ in range(CAPACITY[self._size] // INSERTED):
            self._replay.insert(next(self._prepared))
        self._replay.finish_inserts()

    def check(self) -> None:
        for _ in range(3):
            check(self._replay.fields(self._sample()), self._size)

    def slice(self, what: str, *, begin_at: float, seconds: float) -> dict[str, float]:
        """Items and seconds. Runs untimed until `begin_at`, so that nothing fetched in advance is counted."""
        clock = time.monotonic
        once, items, end = (self._insert, INSERTED, self._replay.finish_inserts) if what == "insert" else (
            self._sample, SAMPLED, _nothing
        )  # fmt: skip
        once()
        while clock() < begin_at:
            once()
        end()
        start, count = clock(), 0
        while clock() - start < seconds:
            once()
            count += items
        end()
        return {"items": count, "seconds": clock() - start}

    def _insert(self) -> None:
        self._replay.insert(next(self._prepared))

    def _sample(self) -> Any:
        return self._replay.sample(next(self._priorities))


def serve_orders(open_replay: Callable[[dict[str, Any]], Replay], *packages: str) -> None:
    """Answers `open` (size, kind and, of a service, its address), `fill`, `check` and `slice` until stdin ends."""
    announcer = Announcer()
    announcer.hello(*packages, "numpy")
    timed: Timed | None = None
    for order in announcer.orders():
        try:
            answer: dict[str, float] = {}
            if order["do"] == "open":
                timed = Timed(open_replay(order), size=order["size"], kind=order["kind"])
            elif timed is None:
                raise AssertionError(f"{order['do']} before open")
            elif order["do"] == "fill":
                timed.fill()
            elif order["do"] == "check":
                timed.check()
            else:
                answer = timed.slice(order["what"], begin_at=order["begin_at"], seconds=order["seconds"])
            announcer.send(answer)
        except Unavailable as e:
            announcer.send({"error": str(e)})
        except Exception:
            announcer.send({"error": traceback.format_exc()})


def serve_server(start: Callable[[str, str, int], Any], *packages: str) -> None:
    """`server SIZE KIND`: starts a service, says its address and waits until stdin ends.

    `start` gets the size, the kind and the capacity; it returns the address and an object that keeps the service alive.
    """
    announcer = Announcer()
    size, kind = sys.argv[2:4]
    address, keep_alive = start(size, kind, CAPACITY[size])
    announcer.hello(*packages, "numpy", address=address)
    for _ in announcer.orders():
        pass
    del keep_alive


def _nothing() -> None:
    pass
