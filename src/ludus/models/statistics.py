"""What a model's host has done so far."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HostStatistics"]


@dataclass(frozen=True, kw_only=True)
class HostStatistics:
    num_calls: int
    num_rows: int
    num_batches: int  # forward passes
    num_failed: int  # calls
    num_pending: int
    max_pending: int
    num_loads: int  # versions loaded so far
    versions: tuple[int, ...]  # ready to run
    held: tuple[int, ...]
    num_refused_versions: int  # that eager runs, because their backend could not, or was too far from it
    backend: str
    busy_s: float

    @property
    def mean_batch_rows(self) -> float:
        return self.num_rows / self.num_batches if self.num_batches else 0.0
