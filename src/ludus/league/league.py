"""A league: players, the matches between them, and what becomes of them by their results.

    league = League(LeagueSettings(), seed=1)
    league.add(Player("main"))
    match = league.request_match("main")               # Match("1", ("main", "main-2"), ...)
    league.report(match.id, (1.0, -1.0))               # True; False when it is reported again
    league.advance("main", step=10_000, version=7)     # it has trained so far: Advance(snapshot, num_resets, ...)

A match is a game, or a series of games between the same players on the same sides (`report_series`).

It is data and one random generator: nothing waits, and `save` is all of it. What is called twice, because an answer was
lost, changes nothing the second time; a match that was asked for twice is aborted by who keeps the league.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.errors import ConfigError, DataError
from ludus.league.pairing import Pairing
from ludus.league.payoff import Payoff
from ludus.league.players import LEARNING, Player
from ludus.league.psro.meta_strategy import MetaStrategy
from ludus.league.rating import Rating, Ratings
from ludus.league.roles import DEFAULT_RULES, RoleRules
from ludus.league.teams import Teams
from ludus.league.turns import Turns
from ludus.spelling import nearest

__all__ = ["Advance", "League", "LeagueSettings", "Match", "Played", "Standing"]

_NUM_RECENT = 100
_MOST_POINTS = 400  # of a player's history; then every other one is left out


@dataclass(frozen=True, kw_only=True)
class LeagueSettings:
    """`rules` by role; of those that learn and are not named, AlphaStar's."""

    num_sides: int = 2
    decay: float = 1.0  # of old results
    min_games: float = 0.0  # fewer say nothing
    rules: Mapping[str, RoleRules] = field(default_factory=dict)
    teams: tuple[tuple[int, ...], ...] = ()  # sides that one player plays together; empty: each side alone
    meta: MetaStrategy = field(default_factory=MetaStrategy)  # what the league's mixture is
    evaluates_learners: bool = True  # False: evaluations are of fixed players, as soon as there are two

    def __post_init__(self) -> None:
        if self.num_sides < 2:
            raise ConfigError(f"num_sides={self.num_sides}: a match has 2 sides or more")
        Teams(self.num_sides, self.teams)
        if not 0.0 < self.decay <= 1.0:
            raise ConfigError(f"decay={self.decay}: it is above 0, and at most 1")
        if not 0.0 <= self.min_games < math.inf:
            raise ConfigError(f"min_games={self.min_games}: it is 0 or more")
        for role in self.rules:
            if role not in LEARNING:
                raise ConfigError(f"rules for the role {role!r}, which does not learn: {nearest(role, LEARNING)}")

    def rules_of(self, player: Player) -> RoleRules:
        return self.rules.get(player.role) or DEFAULT_RULES[player.role]


@dataclass(frozen=True)
class Match:
    """`players` by side. `learner`: who learns by it; `None` for an evaluation. `owner`: the process that plays it."""

    id: str
    players: tuple[Player, ...]
    learner: str | None = None
    owner: str = ""


class Advance(NamedTuple):
    """What training so far means for a player."""

    snapshot: Player | None  # that was taken of it
    num_resets: int  # how often it has had to begin again, so far: then its results are forgotten
    total_steps: int  # of all learners together


class Standing(NamedTuple):
    player: Player
    rating: Rating
    games: float
    win_rate: float  # over all that it met


class Played(NamedTuple):
    """A match that was counted: names by team and, for each of its games, scores by team."""

    id: str
    players: tuple[str, ...]
    games: tuple[tuple[float, ...], ...]


class League:
    """Names are used once: the results of a player that was removed are never another's.

    `recent` has the matches that were counted last; `history`, of each player, its rating over the number of matches.
    """

    def __init__(self, settings: LeagueSettings | None = None, *, seed: int = 0) -> None:
        self.settings = settings or LeagueSettings()
        self.teams = Teams(self.settings.num_sides, self.settings.teams)
        self.payoff = Payoff(decay=self.settings.decay, min_games=self.settings.min_games)
        self.ratings = Ratings()
        self._players: dict[str, Player] = {}
        self._removed: set[str] = set()
        self._since: dict[str, int] = {}  # steps of a learner since its last snapshot
        self._versions: dict[str, int] = {}  # of a learner's model, when it last advanced
        self._num_snapshots: dict[str, int] = {}
        self._turns = Turns()
        self._num_matches = 0
        self._owners: dict[str, str] = {}  # of matches in flight
        self._num_starts: dict[str, int] = {}  # of owners
        self.recent: collections.deque[Played] = collections.deque(maxlen=_NUM_RECENT)
        self.history: dict[str, list[tuple[int, float, float]]] = {}  # matches counted, mean, std
        self.num_games = 0
        self.total_steps = 0  # of all learners together, of those that are gone, too
        self.champion: str | None = None
        self._num_counted = 0
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

    def has_had(self, name: str) -> bool:
        """Whether there is a player of this name, or was one."""
        return name in self._players or name in self._removed

    def add(self, player: Player) -> None:
        """It can be met from now on. A learner of the same name must not be there, nor have been."""
        if self.has_had(player.name):
            raise ConfigError(f"there is, or was, a player {player.name!r}; nothing was added. Give another name")
        if not all(0 <= side < self.settings.num_sides for side in player.sides):
            raise ConfigError(f"{player.name!r} plays the sides {player.sides}; there are {self.settings.num_sides}")
        self._players[player.name] = player
        self.ratings.add(player.name, parent=player.parent)
        if player.is_learning:
            self._since[player.name] = 0
            self._turns.add(player.name)

    def freeze(self, name: str) -> Player:
        """It learns no more, and stays to be met as it is: by the version that it last advanced with."""
        player = self.player(name)
        if player.role in ("snapshot", "frozen"):
            return player
        if not player.is_learning:
            raise ConfigError(f"{name!r} is a {player.role}, which does not learn: there is nothing to freeze")
        version = self._versions.get(name, player.version)
        player = self._players[name] = dataclasses.replace(player, role="frozen", version=version)
        self._forget_learning(name)
        return player

    def _forget_learning(self, name: str) -> None:
        self._turns.remove(name)
        for known in (self._since, self._versions):
            known.pop(name, None)

    def remove(self, name: str) -> None:
        """It is met no more, and its results are forgotten. Its matches in flight are aborted."""
        self.player(name)
        del self._players[name]
        self._removed.add(name)
        self._forget_learning(name)
        self._num_snapshots.pop(name, None)
        self._forget_results(name)
        self.ratings.remove(name)
        self.champion = None if self.champion == name else self.champion
        self.history.pop(name, None)

    def _forget_results(self, name: str) -> None:
        self.payoff.remove(name)
        in_flight = self.payoff.in_flight
        self._owners = {match: owner for match, owner in self._owners.items() if match in in_flight}

    def promote(self, name: str | None) -> None:
        """It is the champion. A learner goes on changing: promote a snapshot of it."""
        self.champion = None if name is None else self.player(name).name

    def configure(self, settings: LeagueSettings) -> None:
        """Other rules, from the next match on. What has been played stays."""
        if (settings.num_sides, settings.teams) != (self.settings.num_sides, self.settings.teams):
            raise ConfigError("the sides and the teams of a league's games stay as they are; nothing was changed")
        self.settings = settings
        self.payoff.decay, self.payoff.min_games = settings.decay, settings.min_games

    # --- matches

    def request_match(self, learner: str) -> Match:
        """`choose_match`, and it begins."""
        return self.begin(self.choose_matches(learner, 1)[0])

    def request_evaluation(self, names: Sequence[str] | None = None) -> Match:
        """`choose_evaluations` of one, and it begins."""
        return self.begin(self.choose_evaluations(1, names)[0])

    def choose_matches(self, learner: str, num: int, *, owner: str = "", without: Collection[str] = ()) -> list[Match]:
        """For a learner: its opponents by its rules, its side at random; none of those in `without`.

        Raises `ConfigError` if nobody can play.
        """
        player = self.player(learner)
        if not player.is_learning:
            raise ConfigError(f"{learner!r} is a {player.role}, which does not learn: ask for an evaluation instead")
        players = [each for each in self.players if each.name not in without] if without else self.players
        chosen = self._pairing(players).for_learner(player, self.settings.rules_of(player).matchmaking)
        return self._matches(chosen, num, learner, owner)

    def _pairing(self, players: Sequence[Player]) -> Pairing:
        return Pairing(self.teams, players, self.payoff, self._rng)

    def _matches(self, chosen: Iterator[tuple[Player, ...]], num: int, learner: str | None, owner: str) -> list[Match]:
        first = self._num_matches + 1
        return [Match(str(first + number), next(chosen), learner, owner) for number in range(num)]

    @property
    def can_evaluate(self) -> bool:
        """Whether there are two players that can meet."""
        return self._pairing(self.players).can_evaluate

    def choose_evaluations(self, num: int, names: Sequence[str] | None = None, *, owner: str = "") -> list[Match]:
        """Matches from which nobody learns, each of the pair that has met least: of those named, or of all."""
        found = self._evaluated() if names is None else [self.player(name) for name in names]
        return self._matches(self._pairing(found).for_evaluation(), num, None, owner)

    def _evaluated(self) -> list[Player]:
        fixed = [player for player in self.players if player.is_fixed]
        is_of_fixed = not self.settings.evaluates_learners and self._pairing(fixed).can_evaluate
        return fixed if is_of_fixed else self.players

    def num_missing_evaluations(self) -> int:
        """Games that fixed players have yet to play before all of them belong to the mixture."""
        fixed = [player.name for player in self._players.values() if player.is_fixed]
        least = self.settings.meta.min_games
        games = (self.payoff.record(one, two).games for one, two in itertools.combinations(fixed, 2))
        return sum(math.ceil(least - each) for each in games if each < least)

    def choose_for(self, name: str, *, owner: str = "", without: Collection[str] = ()) -> Match:
        """A match of any player: by its rules if it learns, else with whom it has met least; nobody of `without`."""
        player = self.player(name)
        if player.is_learning:
            return self.choose_matches(name, 1, owner=owner, without=without)[0]
        if player.role == "human":
            raise ConfigError(f"{name!r} is a person: name the opponent instead, and the side that is the game's own")
        others = [
            each.name
            for each in self._players.values()
            if each.name not in (name, *without) and each.role != "human" and self._pairing([player, each]).can_evaluate
        ]
        if not others:
            left_out = f" (not counting {', '.join(sorted(without))})" if without else ""
            raise ConfigError(f"there is nobody in this league that {name!r} could meet{left_out}: add a player")
        games = np.array([self.payoff.games(name, other) for other in others])
        other = others[int(self._rng.choice(np.flatnonzero(games == games.min())))]
        return self.choose_evaluations(1, [name, other], owner=owner)[0]

    def in_role(self, role: str, *, without: Collection[str] = ()) -> str:
        """A player in this role, any of them but those in `without`. Raises `ConfigError` if there is none."""
        players = [each for each in self._players.values() if each.name not in without]
        found = [each.name for each in players if each.role == role]
        if not found:
            roles = ", ".join(sorted({each.role for each in players}))
            left_out = f" (not counting {', '.join(sorted(without))})" if without else ""
            raise ConfigError(f"this league has no player in the role {role!r}{left_out}; there are: {roles}")
        return found[int(self._rng.integers(len(found)))]

    def choose_named(self, names: Sequence[str], *, owner: str = "") -> Match:
        """A match from which nobody learns, of these players by side."""
        if len(names) != self.settings.num_sides:
            raise ConfigError(f"{list(names)}: give one player for each of the {self.settings.num_sides} sides")
        players = tuple(self.player(name) for name in names)
        for side, player in enumerate(players):
            if not player.can_play(side):
                raise ConfigError(f"{player.name!r} cannot play the side {side}, only {player.sides}")
        if self.teams.by_side(self.teams.by_team(players)) != players:
            raise ConfigError(f"{list(names)}: the sides of a team are one player's; teams are {self.teams.sides}")
        return Match(str(self._num_matches + 1), players, None, owner)

    def begin(self, match: Match) -> Match:
        """It is in flight from here on: one of those that were chosen, or what a log has."""
        self.payoff.begin(match.id, self.teams.by_team([player.name for player in match.players]))
        self._num_matches = max(self._num_matches, int(match.id))
        if match.owner:
            self._owners[match.id] = match.owner
        return match

    def report(self, match: str, scores: Sequence[float]) -> bool:
        """`report_series` of one game."""
        return self.report_series(match, [scores])

    def report_series(self, match: str, games: Sequence[Sequence[float]]) -> bool:
        """Count the results of its games, each the scores by side. Ratings take the series as one, by the sums.

        False if it is not in flight: it was reported before, or aborted. Without a game it is aborted.
        """
        if not games:
            self.abort(match)
            return False
        players = self.payoff.in_flight_players(match)
        if players is None:
            return False
        games = self._by_team(match, games)
        self.payoff.check_series(match, games)
        self.ratings.update(players, [sum(scores) for scores in zip(*games, strict=True)])  # it may refuse the sums
        self.payoff.end_series(match, games)
        self._owners.pop(match, None)
        self.recent.append(Played(match, players, tuple(tuple(float(score) for score in scores) for scores in games)))
        self.num_games += len(games)
        self._num_counted += 1
        for name in dict.fromkeys(players):
            self._note_rating(name)
        return True

    def _note_rating(self, name: str) -> None:
        """The last point is now; those before it are the further apart, the more matches there were."""
        points = self.history.setdefault(name, [])
        if len(points) > 1 and self._num_counted - points[-2][0] < 2 * self._num_counted / _MOST_POINTS:
            points.pop()
        points.append((self._num_counted, *self.ratings.of(name)))
        if len(points) > _MOST_POINTS:
            del points[1:-1:2]

    def check_series(self, match: str, games: Sequence[Sequence[float]]) -> None:
        """Raise `DataError` if these cannot be its results."""
        if self.payoff.in_flight_players(match) is not None:
            self.payoff.check_series(match, self._by_team(match, games))

    def _by_team(self, match: str, games: Sequence[Sequence[float]]) -> list[list[float]]:
        for scores in games:
            if len(scores) != self.settings.num_sides:
                raise DataError(
                    f"the match {match!r} has {self.settings.num_sides} sides, and its scores are {list(scores)}; "
                    "nothing was counted. Report one finite number for each side"
                )
        return [self.teams.scores(scores) for scores in games]

    def abort(self, match: str) -> bool:
        """It has no result."""
        self._owners.pop(match, None)
        return self.payoff.abort(match)

    def owner_of(self, match: str) -> str | None:
        """The process that plays it, if it is in flight and one has asked for it."""
        return self._owners.get(match)

    @property
    def owners(self) -> set[str]:
        """The processes that play a match now."""
        return set(self._owners.values())

    def owned(self, owner: str) -> list[str]:
        """The matches in flight that this process plays."""
        return [match for match, each in self._owners.items() if each == owner]

    def start_process(self, owner: str) -> int:
        """How often it was started, this time included: what it draws is to be other than before."""
        self._num_starts[owner] = self._num_starts.get(owner, 0) + 1
        return self._num_starts[owner]

    # --- learning

    def advance(self, name: str, *, step: int, version: int | None = None) -> Advance:
        """A learner has made so many steps in all, and its weights are that version of its model.

        A snapshot that its rules ask for is a player from now on: a name for that version.
        """
        player = self.player(name)
        if not player.is_learning:
            raise ConfigError(f"{name!r} is a {player.role}, which does not learn")
        if step <= player.step:
            return Advance(None, player.num_resets, self.total_steps)
        self._since[name] += step - player.step
        self.total_steps += step - player.step
        self._turns.spend(name, steps=step - player.step, share=self.settings.rules_of(player).share)
        if version is not None:
            self._versions[name] = version
        player = self._players[name] = dataclasses.replace(player, step=step)
        rules = self.settings.rules_of(player)
        targets = rules.targets(player, self.players)
        taken = None
        if rules.snapshot.is_due(name, targets, self.payoff, self._since[name]):
            taken = self.snapshot(name, version)
            if rules.is_reset(self._rng):
                player = self._begin_again(player)
        return Advance(taken, player.num_resets, self.total_steps)

    def _begin_again(self, player: Player) -> Player:
        """What it has won was won by other weights: it counts no more, and its matches in flight are aborted."""
        player = self._players[player.name] = dataclasses.replace(player, num_resets=player.num_resets + 1)
        self._forget_results(player.name)
        return player

    def snapshot(self, name: str, version: int | None = None) -> Player:
        """A player as it is now, by that version of its model, which stays: by default, the one it advanced with."""
        player = self.player(name)
        if player.role in ("bot", "human"):
            raise ConfigError(f"{name!r} is a {player.role}, which has no versions: a snapshot is of one that learns")
        version = self._versions.get(name, player.version) if version is None else version
        if version is None and player.is_learning and player.model is not None:
            raise ConfigError(f"{name!r} has no version yet: let it train first; nothing was changed")
        number = self._num_snapshots.get(name, 0) + 1
        while f"{name}-{number}" in self._players or f"{name}-{number}" in self._removed:
            number += 1  # somebody has given this name to another player
        taken = dataclasses.replace(player, name=f"{name}-{number}", role="snapshot", parent=name, version=version)
        self.add(taken)
        self._num_snapshots[name] = number
        if name in self._since:
            self._since[name] = 0
        return taken

    def next_learner(self, part: int = 0, num_parts: int = 1) -> Player | None:
        """Whose turn it is, where learners take turns: of those that trained least for their share, the first.

        Of several processes, each has its part of the learners; `None` if nobody in it learns.
        """
        name = self._turns.next(part, num_parts)
        return None if name is None else self._players[name]

    # --- what is known

    @property
    def rng(self) -> np.random.Generator:
        """What all its choices are drawn from."""
        return self._rng

    def mixture(self) -> dict[str, float]:
        """What the league is worth as a whole: fixed players, and the probabilities with which each should play."""
        return dict(self.settings.meta.mixture(self.players, self.payoff))

    def standings(self) -> list[Standing]:
        """The strongest first."""
        wins, draws, losses = self.payoff.table(list(self._players)).sum(1).T
        games, points = wins + draws + losses, wins + 0.5 * draws
        found = [
            Standing(player, self.ratings.of(player.name), float(games[i]), float(points[i] / games[i]))
            if games[i]
            else Standing(player, self.ratings.of(player.name), 0.0, 0.5)
            for i, player in enumerate(self._players.values())
        ]
        return sorted(found, key=lambda standing: -standing.rating.mean)

    def save(self) -> Nest:
        """All but the settings, for the codec."""
        return {
            "players": [
                {**dataclasses.asdict(player), "sides": list(player.sides)} for player in self._players.values()
            ],
            "removed": sorted(self._removed),
            "since": dict(self._since),
            "versions": dict(self._versions),
            "num_snapshots": dict(self._num_snapshots),
            "turns": self._turns.save(),
            "num_matches": self._num_matches,
            "owners": dict(self._owners),
            "num_starts": dict(self._num_starts),
            "payoff": self.payoff.save(),
            "ratings": self.ratings.save(),
            "recent": [[each.id, list(each.players), [list(game) for game in each.games]] for each in self.recent],
            "history": {name: [list(point) for point in points] for name, points in self.history.items()},
            "num_counted": [self._num_counted, self.num_games],
            "total_steps": self.total_steps,
            "champion": self.champion,
            "rng": save_rng(self._rng),
        }

    def restore(self, saved: Nest) -> None:
        """Go on where `save` was called: the same matches are in flight, and the next ones are the same.

        Also of what was saved before players knew how often they were reset, and starts were counted.
        """
        self._players = {each["name"]: _player(each) for each in saved["players"]}
        for name, number in saved.get("num_resets", {}).items():
            self._players[name] = dataclasses.replace(self._players[name], num_resets=int(number))
        self._removed = set(saved["removed"])
        self._since = {name: int(steps) for name, steps in saved["since"].items()}
        self._versions = {name: int(version) for name, version in saved["versions"].items()}
        self._num_snapshots = {name: int(number) for name, number in saved["num_snapshots"].items()}
        self._turns.restore(saved["turns"])
        self._num_matches = int(saved["num_matches"])
        self._owners = dict(saved["owners"])
        self._num_starts = {owner: int(number) for owner, number in saved.get("num_starts", {}).items()}
        self.payoff.restore(saved["payoff"])
        self.ratings.restore(saved["ratings"])
        self.recent.clear()
        self.recent.extend(
            Played(match, tuple(players), tuple(tuple(game) for game in games))
            for match, players, games in saved["recent"]
        )
        self.history = {
            name: [(int(counted), mean, std) for counted, mean, std in points]
            for name, points in saved["history"].items()
        }
        self._num_counted, self.num_games = (int(number) for number in saved["num_counted"])
        self.total_steps = int(saved["total_steps"])
        self.champion = saved["champion"]
        restore_rng(self._rng, saved["rng"])


def _player(saved: dict[str, Any]) -> Player:
    return Player(**{**saved, "sides": tuple(saved["sides"])})
