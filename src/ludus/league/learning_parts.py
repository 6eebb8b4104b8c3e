"""What the players that learn in one process share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ludus.core import EnvSpec
from ludus.experiment.config import Config
from ludus.league.distant_collectors import DistantCollectors
from ludus.league.match_book import LeagueCalls
from ludus.league.seats import OpensPlayers

__all__ = ["LearningParts"]


@dataclass(frozen=True, kw_only=True)
class LearningParts:
    """`distant`: other processes that play for the learners of this one."""

    config: Config
    env: EnvSpec
    league: LeagueCalls
    seats: OpensPlayers
    folder: Path  # of the trial
    owner: str = ""  # this process, as the league knows it
    games_per_match: int = 4
    search: int = 0  # simulations of a tree search before each move of networks in evaluations
    past_segments: int = 0  # that are learnt from again with each new one, see `experience.py`
    distant: DistantCollectors | None = None
