"""A worker that counts, in a module that its process loads quickly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.telemetry.counts import Counts
from ludus.workers.worker import Worker


class Counting(Worker):
    idle_s = 0.05

    def _poll(self) -> int:
        return 0

    def _stats(self) -> dict[str, int]:
        return {"num_games": 3}

    @staticmethod
    def metric_counts(stats: Mapping[str, Any]) -> Counts:
        return Counts(totals={"games": stats["num_games"]})
