"""What a league's service has counted, and as which metrics of its trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ludus.telemetry.counts import Counts

__all__ = ["LeagueStats", "counts"]


@dataclass(frozen=True, kw_only=True)
class LeagueStats:
    num_players: int
    num_learners: int
    num_in_flight: int
    num_steps: int  # that all learners have made together
    num_reported: int  # results that were counted, by this process
    num_repeated: int  # reports of matches that were not in flight: retried, aborted or unknown
    num_expired: int  # matches that nobody reported in time


def counts(stats: Mapping[str, Any]) -> Counts:
    """`LeagueStats` by name, as what they are."""
    return Counts(
        totals={
            "matches": stats["num_reported"],
            "matches_repeated": stats["num_repeated"],
            "matches_expired": stats["num_expired"],
        },
        levels={"matches_in_flight": stats["num_in_flight"], "players": stats["num_players"]},
        rates={"matches_per_second": "matches"},
    )
