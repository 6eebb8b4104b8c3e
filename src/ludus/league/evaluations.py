"""Evaluations: matches from which nobody learns, so that it is known who beats whom.

evaluations = Evaluations(parts, seed=1)
evaluations.play()                                 # some steps of all its envs
evaluations.play_games(200)
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ludus.core import TimeStep
from ludus.experiment import wiring
from ludus.league.learning_parts import LearningParts
from ludus.league.match_book import MatchBook
from ludus.league.match_chooser import MatchChooser
from ludus.league.seats import Searching

__all__ = ["Evaluations"]

_STEPS = 64  # of each env in one `play`
_MOST_ENVS = 64


class Evaluations:
    """Each of the pair that has met least: of `names`, or of all players. `greedy`: by their likeliest actions."""

    def __init__(
        self,
        parts: LearningParts,
        *,
        seed: int,
        names: Sequence[str] | None = None,
        num_envs: int = _MOST_ENVS,
        greedy: bool = False,
    ) -> None:
        config = parts.config
        num_envs = min(num_envs, config.algorithm.num_envs)
        self.seconds = 0.0
        self._env = wiring.make_evaluation_env(config, num_envs)
        num_agents = len(self._env.spec.agents)
        self._book = MatchBook(
            parts.league,
            num_envs=num_envs,
            learner=None,
            names=names,
            owner=parts.owner,
            games_per_match=parts.games_per_match,
        )
        self._chooser = MatchChooser(
            Searching(parts.seats, parts.search),
            self._book,
            None,
            num_envs=num_envs,
            num_agents=num_agents,
            greedy=greedy,
        )
        self._rng = np.random.default_rng([seed, 0xE7A1])
        self._seed = int(self._rng.integers(1 << 31))
        self._now: TimeStep | None = None

    @property
    def num_games(self) -> int:
        return self._book.num_games

    def play(self, num_steps: int = _STEPS) -> None:
        """So many steps of all envs; what has ended is reported."""
        began = time.perf_counter()
        now = self._env.reset(self._seed) if self._now is None else self._now
        for _ in range(num_steps):
            ticket = self._chooser.begin(now, None, slice(0, self._env.num_rows))
            now = self._env.step(self._chooser.finish(ticket, self._rng).action)
        self._now = now
        self._chooser.forget_steps()
        self._book.flush()
        self.seconds += time.perf_counter() - began

    def abandon(self) -> None:
        """Abort the matches that are under way; it is closed next."""
        self._book.abandon()

    def play_games(self, num_games: int) -> None:
        """At least so many more games."""
        until = self.num_games + num_games
        while self.num_games < until:
            self.play()

    def close(self) -> None:
        self._env.close()
