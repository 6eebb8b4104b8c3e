"""What a buffer has counted, and who waits in it and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ludus.telemetry.counts import Counts

__all__ = ["BufferStats", "counts"]


@dataclass(frozen=True, kw_only=True)
class BufferStats:
    """Of a queue `num_pushed` = `num_taken` + `num_evicted` + `size` always: nothing is lost or counted twice.

    `num_dropped` were never queued: there was no room for them, and their producer did not want to wait.
    """

    num_pushed: int
    num_taken: int  # or sampled; an item that was sampled twice counts twice
    num_dropped: int
    num_duplicates: int  # pushed once more and not queued again
    num_waiting_producers: int  # segments that wait for room
    num_rows_taken: int
    size: int
    capacity: int
    full_s: float  # that segments have waited for room, all together
    num_evicted: int = 0  # removed to make room for later ones
    inserting: str = ""  # why the next push must wait; empty: it need not
    sampling: str = ""  # why the next take or sample must wait; empty: it need not


def counts(stats: Mapping[str, Any]) -> Counts:
    """`BufferStats` by name, as what they are."""
    return Counts(
        totals={name: stats[f"num_{name}"] for name in ("pushed", "taken", "dropped", "duplicates")},
        levels={
            "size": stats["size"],
            "capacity": stats["capacity"],
            "waiting_producers": stats["num_waiting_producers"],
        },
        rates={"pushed_per_second": "pushed", "taken_per_second": "taken"},
    )
