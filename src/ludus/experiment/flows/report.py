"""What one turn of a flow tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ludus.services.simulator.episodes import Episode

__all__ = ["Report"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """`num_steps` environment steps went into this update, on all ranks."""

    num_steps: int
    episodes: list[Episode] = field(default_factory=list)
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the learner
    seconds: Mapping[str, float] = field(default_factory=dict)  # where the time of this turn went
    lag: float = 0.0  # versions between the weights that chose and those that learn, mean over steps
    max_lag: int = 0
    counts: Mapping[str, float] = field(default_factory=dict)  # totals so far: segments, duplicates, drops
    is_collected: bool = True  # false: this turn took no segment, it learnt from what is kept
