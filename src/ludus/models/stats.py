"""What the inference kernel of one model has done so far."""

from __future__ import annotations

from dataclasses import dataclass

from ludus.rpc.batching import BatchStatistics

__all__ = ["KernelStats"]


@dataclass(frozen=True, kw_only=True)
class KernelStats(BatchStatistics):
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
