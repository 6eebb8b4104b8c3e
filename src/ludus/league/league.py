"""A league: players, the matches between them, and what becomes of them by their results.

    league = League(LeagueSettings(), seed=1)
    league.add(Player("main"))
    match = league.request_match("main")               # Match("1", ("main", "main-2"), ...)
    league.report(match.id, (1.0, -1.0))               # True; False when it is reported again
    league.advance("main", step=10_000, version=7)     # it has trained so far: Advance(snapshot, num_resets)

It is data and one random generator: nothing waits, and `save` is all of it. What is called twice, because an answer was
lost, changes nothing the second time; a match that was asked for twice is aborted by who keeps the league.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.errors import ConfigError, DataError
from ludus.league.matchmaking import least_played
from ludus.league.payoff import Payoff
from ludus.league.players import LEARNING, Player
from ludus.league.rating import Rating, Ratings
from ludus.league.roles import DEFAULT_RULES, RoleRules
from ludus.spelling import nearest

__all__ = ["Advance", "League", "LeagueSettings", "Match", "Standing"]


@dataclass(frozen=True, kw_only=True)
class LeagueSettings:
    """`rules` by role; of those that learn and are not named, AlphaStar's."""

    num_sides: int = 2
    decay: float = 1.0  # of old results
    min_games: float = 0.0  # fewer say nothing
    rules: Mapping[str, RoleRules] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_sides < 2:
            raise ConfigError(f"num_sides={self.num_sides}: a match has 2 sides or more")
        for role in self.rules:
            if role not in LEARNING:
                raise ConfigError(f"rules for the role {role!r}, which does not learn: {nearest(role, LEARNING)}")

    def rules_of(self, player: Player) -> RoleRules:
        return self.rules.get(player.role) or DEFAULT_RULES[player.role]


@dataclass(frozen=True)
class Match:
    """`players` by side. `learner`: whose turn it is to learn by it; `None` for an evaluation."""

    id: str
    players: tuple[Player, ...]
    learner: str | None = None


class Advance(NamedTuple):
    """What training so far means for a player."""

    snapshot: Player | None  # that was taken of it
    num_resets: int  # how often it has had to begin again from its first weights, so far


class Standing(NamedTuple):
    player: Player
    rating: Rating
    games: float
    win_rate: float  # over all that it met


class League:
    """Names are used once: the results of a player that was removed are never another's."""

    def __init__(self, settings: LeagueSettings | None = None, *, seed: int = 0) -> None:
        self.settings = settings or LeagueSettings()
        self.payoff = Payoff(decay=self.settings.decay, min_games=self.settings.min_games)
        self.ratings = Ratings()
        self._players: dict[str, Player] = {}
        self._removed: set[str] = set()
        self._since: dict[str, int] = {}  # steps of a learner since its last snapshot
        self._num_snapshots: dict[str, int] = {}
        self._num_resets: dict[str, int] = {}
        self._num_matches = 0
        self._rng = np.random.default_rng([seed, 0x1EA6])

    # --- players

    @property
    def players(self) -> list[Player]:
        """In the order in which they came."""
        return list(self._players.values())

    @property
    def learners(self) -> list[Player]:
        return [player for player in self._players.values() if player.is_learning]

    def player(self, name: str) -> Player:
        """Raises `DataError` if there is none."""
        if name not in self._players:
            raise DataError(f"there is no player {name!r}. {nearest(name, self._players)}")
        return self._players[name]

    def add(self, player: Player) -> None:
        """It can be met from now on. A learner of the same name must not be there, nor have been."""
        if player.name in self._players or player.name in self._removed:
            raise ConfigError(f"there is, or was, a player {player.name!r}; nothing was added. Give another name")
        if any(side >= self.settings.num_sides for side in player.sides):
            raise ConfigError(f"{player.name!r} plays the sides {player.sides}; there are {self.settings.num_sides}")
        self._players[player.name] = player
        self.ratings.add(player.name, parent=player.parent)
        if player.is_learning:
            self._since[player.name] = 0

    def freeze(self, name: str) -> Player:
        """It learns no more, and stays to be met as it is."""
        player = dataclasses.replace(self.player(name), role="frozen")
        self._players[name] = player
        self._since.pop(name, None)
        return player

    def remove(self, name: str) -> None:
        """It is met no more, and its results are forgotten. Its matches in flight are aborted."""
        self.player(name)
        del self._players[name]
        self._removed.add(name)
        self._since.pop(name, None)
        self.payoff.remove(name)
        self.ratings.remove(name)

    def configure(self, settings: LeagueSettings) -> None:
        """Other rules, from the next match on. What has been played stays."""
        if settings.num_sides != self.settings.num_sides:
            raise ConfigError(f"num_sides={settings.num_sides}: this league's games have {self.settings.num_sides}")
        self.settings = settings
        self.payoff.decay, self.payoff.min_games = settings.decay, settings.min_games

    # --- matches

    def request_match(self, learner: str) -> Match:
        """`choose_match`, and it begins."""
        return self.begin(self.choose_match(learner))

    def request_evaluation(self, names: Sequence[str] | None = None) -> Match:
        """`choose_evaluation`, and it begins."""
        return self.begin(self.choose_evaluation(names))

    def choose_match(self, learner: str) -> Match:
        """For a learner: its opponents by its rules, its side at random. Raises `ConfigError` if nobody can play."""
        player = self.player(learner)
        if not player.is_learning:
            raise ConfigError(f"{learner!r} is a {player.role}, which does not learn: ask for an evaluation instead")
        sides = [side for side in range(self.settings.num_sides) if player.can_play(side)]
        own = sides[int(self._rng.integers(len(sides)))]
        rule = self.settings.rules_of(player).matchmaking
        chosen = []
        for side in range(self.settings.num_sides):
            if side == own:
                chosen.append(player)
                continue
            candidates = [each for each in self._players.values() if each.can_play(side) and each.role != "human"]
            opponent = rule.choose(learner, candidates, self.payoff, self._rng)
            if opponent is None:
                opponent = self._anybody(player, candidates, side)
            chosen.append(self._players[opponent])
        return self._next_match(tuple(chosen), learner)

    def _anybody(self, player: Player, candidates: Sequence[Player], side: int) -> str:
        """Of a young league, where nobody fits the rules: itself, or any other."""
        if not candidates:
            raise ConfigError(f"nobody can play the side {side} against {player.name!r}: add a player that can")
        if any(each.name == player.name for each in candidates):
            return player.name
        return candidates[int(self._rng.integers(len(candidates)))].name

    def choose_evaluation(self, names: Sequence[str] | None = None) -> Match:
        """A match from which nobody learns, of the pair that has met least; of games with two sides."""
        if self.settings.num_sides != 2:
            raise ConfigError(f"evaluations are of two sides; this league's games have {self.settings.num_sides}")
        found = [player for player in self._players.values() if player.role != "human"]
        if names is not None:
            found = [self.player(name) for name in names]
        one, two = (self._players[name] for name in least_played([each.name for each in found], self.payoff, self._rng))
        if one.can_play(0) and two.can_play(1):
            return self._next_match((one, two), None)
        if two.can_play(0) and one.can_play(1):
            return self._next_match((two, one), None)
        raise ConfigError(f"{one.name!r} and {two.name!r} play the same side only, so that they cannot meet")

    def _next_match(self, players: tuple[Player, ...], learner: str | None) -> Match:
        return Match(str(self._num_matches + 1), players, learner)

    def begin(self, match: Match) -> Match:
        """It is in flight from here on: what `choose_match` gave, or what a log has."""
        self.payoff.begin(match.id, [player.name for player in match.players])
        self._num_matches = max(self._num_matches, int(match.id))
        return match

    def report(self, match: str, scores: Sequence[float]) -> bool:
        """Count a result, by side. False if it is not in flight: it was reported before, or aborted."""
        players = self.payoff.in_flight.get(match)
        if players is None or not self.payoff.end(match, scores):
            return False
        self.ratings.update(players, scores)
        return True

    def abort(self, match: str) -> bool:
        """It has no result."""
        return self.payoff.abort(match)

    # --- learning

    def advance(self, name: str, *, step: int, version: int | None = None) -> Advance:
        """A learner has made so many steps in all, and its weights are that version of its model.

        A snapshot that its rules ask for is a player from now on: a name for that version.
        """
        player = self.player(name)
        if not player.is_learning:
            raise ConfigError(f"{name!r} is a {player.role}, which does not learn")
        if step <= player.step:
            return Advance(None, self._num_resets.get(name, 0))
        self._since[name] += step - player.step
        player = self._players[name] = dataclasses.replace(player, step=step)
        rules = self.settings.rules_of(player)
        targets = rules.targets(player, self.players)
        taken = None
        if rules.snapshot.is_due(name, targets, self.payoff, self._since[name]):
            taken = self.snapshot(name, version)
            if rules.is_reset(self._rng):
                self._num_resets[name] = self._num_resets.get(name, 0) + 1
        return Advance(taken, self._num_resets.get(name, 0))

    def snapshot(self, name: str, version: int | None = None) -> Player:
        """A player as it is now, by that version of its model, which stays."""
        player = self.player(name)
        number = self._num_snapshots[name] = self._num_snapshots.get(name, 0) + 1
        taken = dataclasses.replace(player, name=f"{name}-{number}", role="snapshot", parent=name, version=version)
        self.add(taken)
        if name in self._since:
            self._since[name] = 0
        return taken

    def next_learner(self) -> Player:
        """Whose turn it is, where learners take turns: of those that trained least, the first."""
        learners = self.learners
        if not learners:
            raise ConfigError("nobody in this league learns: add a player, for example of the role 'main'")
        return min(learners, key=lambda player: player.step)

    # --- what is known

    @property
    def rng(self) -> np.random.Generator:
        """What all its choices are drawn from."""
        return self._rng

    def standings(self) -> list[Standing]:
        """The strongest first."""
        found = []
        for player in self._players.values():
            records = [self.payoff.record(player.name, other) for other in self._players]
            games = sum(record.games for record in records)
            points = sum(record.wins + 0.5 * record.draws for record in records)
            found.append(Standing(player, self.ratings.of(player.name), games, points / games if games else 0.5))
        return sorted(found, key=lambda standing: -standing.rating.mean)

    def save(self) -> Nest:
        """All but the settings, for the codec."""
        return {
            "players": [
                {**dataclasses.asdict(player), "sides": list(player.sides)} for player in self._players.values()
            ],
            "removed": sorted(self._removed),
            "since": dict(self._since),
            "num_snapshots": dict(self._num_snapshots),
            "num_resets": dict(self._num_resets),
            "num_matches": self._num_matches,
            "payoff": self.payoff.save(),
            "ratings": self.ratings.save(),
            "rng": save_rng(self._rng),
        }

    def restore(self, saved: Nest) -> None:
        """Go on where `save` was called: the same matches are in flight, and the next ones are the same."""
        self._players = {each["name"]: _player(each) for each in saved["players"]}
        self._removed = set(saved["removed"])
        self._since = {name: int(steps) for name, steps in saved["since"].items()}
        self._num_snapshots = {name: int(number) for name, number in saved["num_snapshots"].items()}
        self._num_resets = {name: int(number) for name, number in saved["num_resets"].items()}
        self._num_matches = int(saved["num_matches"])
        self.payoff.restore(saved["payoff"])
        self.ratings.restore(saved["ratings"])
        restore_rng(self._rng, saved["rng"])


def _player(saved: dict[str, Any]) -> Player:
    return Player(**{**saved, "sides": tuple(saved["sides"])})
