"""Who plays which team of a match: for a learner by its rules, for an evaluation by who has met least.

    pairing = Pairing(teams, players, payoff, rng)
    next(pairing.for_learner(main, rule))              # players by side
    next(pairing.for_evaluation())

Both go on for as long as they are asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from ludus.errors import ConfigError
from ludus.league.matchmaking import MatchmakingRule, least_played
from ludus.league.payoff import Payoff
from ludus.league.players import Player
from ludus.league.teams import Teams

__all__ = ["Pairing"]


class Pairing:
    """Of these players; a person is never chosen. Raises `ConfigError` if nobody can play."""

    def __init__(self, teams: Teams, players: Sequence[Player], payoff: Payoff, rng: np.random.Generator) -> None:
        self._teams = teams
        self._players = [player for player in players if player.role != "human"]
        self._payoff = payoff
        self._rng = rng
        self._candidates = [
            [player for player in self._players if self._can_play(player, team)] for team in range(teams.num)
        ]

    def _can_play(self, player: Player, team: int) -> bool:
        return not player.sides or all(player.can_play(side) for side in self._teams.sides[team])

    # --- for a learner

    def for_learner(self, player: Player, rule: MatchmakingRule) -> Iterator[tuple[Player, ...]]:
        """Its opponents are the rule's; which team is its own is drawn."""
        by_name = {each.name: each for each in self._players}
        own = [team for team in range(self._teams.num) if self._can_play(player, team)]
        if not own:
            raise ConfigError(f"{player.name!r} plays the sides {player.sides}: no whole team of {self._teams.sides}")
        while True:
            team = own[int(self._rng.integers(len(own)))]
            chosen = []
            for other in range(self._teams.num):
                if other == team:
                    chosen.append(player)
                    continue
                name = rule.choose(player.name, self._candidates[other], self._payoff, self._rng)
                chosen.append(by_name[name] if name is not None else self._anybody(player, other))
            yield self._teams.by_side(chosen)

    def _anybody(self, player: Player, team: int) -> Player:
        """Of a young league, where nobody fits the rules: itself, or any other."""
        candidates = self._candidates[team]
        if not candidates:
            sides = ", ".join(map(str, self._teams.sides[team]))
            raise ConfigError(f"nobody can play the side {sides} against {player.name!r}: add a player that can")
        own = next((each for each in candidates if each.name == player.name), None)
        return self._drawn(candidates) if own is None else own

    # --- for an evaluation

    @property
    def can_evaluate(self) -> bool:
        """Whether there are two players that can meet."""
        return next(self._pairs(), None) is not None

    def for_evaluation(self) -> Iterator[tuple[Player, ...]]:
        """Of the pair that has met least, on any of their sides. Further teams are drawn from all."""
        by_name = {each.name: each for each in self._players}
        pairs = list(self._pairs())
        if not pairs:
            few = len(self._players) < 2
            why = "an evaluation needs 2 players or more" if few else "they play the same side only"
            raise ConfigError(f"{', '.join(by_name)} cannot meet: {why}")
        for names in least_played(pairs, self._payoff, self._rng):
            one, two = (by_name[name] for name in names)
            places = list(self._places(one, two))
            chosen = dict(zip(places[int(self._rng.integers(len(places)))], (one, two), strict=True))
            for team in range(self._teams.num):
                if team not in chosen:
                    chosen[team] = self._drawn(self._candidates[team])
            yield self._teams.by_side([chosen[team] for team in range(self._teams.num)])

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Those that can meet."""
        for one, two in itertools.combinations(self._players, 2):
            if not (one.sides or two.sides) or next(self._places(one, two), None) is not None:
                yield one.name, two.name

    def _places(self, one: Player, two: Player) -> Iterator[tuple[int, ...]]:
        """The teams that they can have in a match; there is somebody for the others."""
        for place in itertools.permutations(range(self._teams.num), 2):
            can_play = self._can_play(one, place[0]) and self._can_play(two, place[1])
            if can_play and all(self._candidates[team] for team in range(self._teams.num) if team not in place):
                yield place

    def _drawn(self, players: Sequence[Player]) -> Player:
        return players[int(self._rng.integers(len(players)))]
