"""What the inference kernel of one model has done so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ludus.rpc.batching import BatchStats
from ludus.telemetry.counts import Counts

__all__ = ["KernelStats", "counts"]


@dataclass(frozen=True, kw_only=True)
class KernelStats(BatchStats):
    num_rows: int
    num_failed: int  # calls
    num_loads: int  # versions loaded so far
    versions: tuple[int, ...]  # ready to run
    held: tuple[int, ...]
    num_refused_versions: int  # run by eager, because their backend could not load them or was too far from it
    backend: str
    busy_s: float
    idle_s: float

    @property
    def mean_batch_rows(self) -> float:
        return self.num_rows / self.num_batches if self.num_batches else 0.0


def counts(stats: Mapping[str, Any]) -> Counts:
    """`KernelStats` by name, as what they are. A forward pass is of one batch."""
    return Counts(
        totals={
            "calls": stats["num_calls"],
            "rows": stats["num_rows"],
            "forwards": stats["num_batches"],
            "failed": stats["num_failed"],
            "loads": stats["num_loads"],
        },
        levels={"pending": stats["num_pending"]},
        parts={"busy_s": stats["busy_s"]},
        rates={"forwards_per_second": "forwards", "rows_per_second": "rows"},
        means={"batch_rows": ("rows", "forwards")},
        shares={"busy": "busy_s"},
    )
