"""What the players that learn in one process share."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ludus.core import EnvSpec
from ludus.experiment.config import Config
from ludus.league.distant_collectors import DistantCollectors
from ludus.league.match_book import LeagueCalls
from ludus.league.seats import OpensPlayers

__all__ = ["LearningParts", "seed_of"]


@dataclass(frozen=True, kw_only=True)
class LearningParts:
    """`distant`: other processes that play for the learners of this one."""

    config: Config
    env: EnvSpec
    league: LeagueCalls
    seats: OpensPlayers
    folder: Path  # of the trial
    owner: str = ""  # this process, as the league knows it
    num_starts: int = 0  # how often it was started
    games_per_match: int = 4
    search: int = 0  # simulations of a tree search before each move of networks in evaluations
    past_segments: int = 0  # that are learnt from again with each new one, see `experience.py`
    distant: DistantCollectors | None = None

    def seed(self, *purpose: str | int) -> int:
        """For what is drawn in this process: the same where a league with the same seed gets as far without a stop.

        A process that is started again draws others, so it does not play again the games that were counted before.
        """
        words = (self.owner, self.num_starts, *purpose)
        numbers = [zlib.crc32(word.encode()) if isinstance(word, str) else word for word in words]
        return seed_of(self.config, *numbers)


def seed_of(config: Config, *numbers: int) -> int:
    """By the seed of the run and these."""
    seeds = np.random.SeedSequence([config.train.seed, *numbers])
    return int(seeds.generate_state(1, np.uint64)[0] >> np.uint64(1))
