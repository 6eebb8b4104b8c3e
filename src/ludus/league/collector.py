"""The matches of one learner in one process: played by its weights, given as segments that only have its own steps.

collector = Collector("main", policy, parts, seed=1)
found = collector.collect(version=7)
found.segment, found.episodes
"""

from __future__ import annotations

from ludus.experiment import wiring
from ludus.league.collected import Collected
from ludus.league.learning_parts import LearningParts
from ludus.league.match_book import MatchBook
from ludus.league.match_chooser import MatchChooser
from ludus.learn.policies.policy import Policy
from ludus.services.simulator.simulator import Simulator

__all__ = ["Collector"]


class Collector:
    """`policy` is the learner's; its weights may change between segments."""

    def __init__(self, name: str, policy: Policy, parts: LearningParts, *, seed: int) -> None:
        self._parts = parts
        [group] = wiring.make_groups(parts.config)
        self.book = MatchBook(
            parts.league,
            num_envs=group.num_envs,
            learner=name,
            owner=parts.owner,
            games_per_match=parts.games_per_match,
        )
        self._matches = MatchChooser(
            parts.seats,
            self.book,
            wiring.make_chooser(parts.config, policy, parts.env),
            num_envs=group.num_envs,
            num_agents=len(parts.env.agents),
        )
        self._simulator = Simulator(
            [group],
            self._matches,
            num_steps=parts.config.algorithm.num_steps,
            seed=seed,
            state_spec=policy.state_spec,
        )

    def collect(self, version: int) -> Collected:
        """The next segment, by the weights of `version`. Its arrays are used again for the one after it."""
        before = self.book.num_games
        rollout = self._simulator.collect(version)
        episodes = self._matches.settle(rollout.segment)
        return Collected(segment=rollout.segment, episodes=episodes, num_games=self.book.num_games - before)

    def use(self, policy: Policy) -> None:
        """Another policy, in the same games."""
        self._matches.use(wiring.make_chooser(self._parts.config, policy, self._parts.env))

    def abandon(self) -> None:
        """Abort its matches: it is closed next."""
        self.book.abandon()

    def close(self) -> None:
        self._simulator.close()
