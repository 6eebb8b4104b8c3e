"""From a player of a league to what chooses its moves: weights from the model pool, a bot, a search.

seats = Seats(pool, policy_spec, game)
seats.open(player)                                 # a `PlayerPolicy`: ready to act
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from ludus.data.actions import ActionSpec
from ludus.data.nest import Nest
from ludus.errors import ConfigError
from ludus.experiment.search_player import SearchPlayer
from ludus.league.players import Player, PlayerPolicy
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.learn.search.settings import SearchSettings

__all__ = ["NO_VERSION", "GameSeats", "OpensPlayers", "ReadPool", "Searching", "Seats", "search_with", "version_of"]

NO_VERSION = -1
_MOST_OPEN = 64  # players whose weights are kept in memory


class ReadPool(Protocol):
    """What is read of a model pool."""

    def get(self, model: str, version: int = -1) -> tuple[Any, Mapping[str, NDArray[Any]]]:
        """A version (it has a `number`) and its weights; -1: the newest."""
        ...

    def latest(self, model: str) -> int | None: ...


class OpensPlayers(Protocol):
    """Makes players ready to act in one game."""

    @property
    def action(self) -> ActionSpec: ...

    def open(self, player: Player) -> PlayerPolicy: ...


class GameSeats(OpensPlayers, Protocol):
    """They also know what is seen in the game, and which versions are played in it."""

    @property
    def obs(self) -> Nest: ...

    def version_of(self, player: Player) -> int: ...


@dataclass
class Seats:
    """`policy` is what the league's own networks look like; `imported` makes that of a model from elsewhere.

    `search` makes a player of a policy that looks ahead. What was opened is kept, the least recently used goes first. A
    player without a version plays the newest.
    """

    pool: ReadPool
    policy: PolicySpec
    game: str
    game_args: Mapping[str, Any] = field(default_factory=dict)
    search: Callable[[Policy, SearchSettings], PlayerPolicy] | None = None
    imported: Callable[[str], Policy | None] = lambda model: None  # `ImportedNetworks.open`
    check_bot: Callable[[str], None] = lambda model: None  # raises `ConfigError` for code that is not to be run
    _open: collections.OrderedDict[tuple[str, str, int, int, bool], PlayerPolicy] = field(
        default_factory=collections.OrderedDict
    )

    @property
    def obs(self) -> Nest:
        return self.policy.obs

    @property
    def action(self) -> ActionSpec:
        return self.policy.action

    def open(self, player: Player) -> PlayerPolicy:
        """Raises `ConfigError` for one that cannot play by itself, `DataError` if its weights are not there."""
        if player.role == "human":
            raise ConfigError(f"{player.name!r} is a person: its moves come from a page or a game, not from a model")
        if player.model is None:
            raise ConfigError(f"{player.name!r} has no model: give it one, or make it a bot such as random")
        version = self.version_of(player)
        key = (player.model, player.role, version, player.search, player.gumbel)
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = self._make(player, version)
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(key)
        return found

    def version_of(self, player: Player) -> int:
        """The number that it plays now; -1 for a bot, and for a learner that has learnt nothing yet."""
        return version_of(self.pool, player)

    def _make(self, player: Player, version: int) -> PlayerPolicy:
        assert player.model is not None
        if player.role == "bot":
            from ludus.league.bots import make_bot

            self.check_bot(player.model)
            return make_bot(player.model, self.game, self.game_args)
        policy = self.imported(player.model) or Policy(self.policy)
        if version != NO_VERSION:
            policy.load_weights(self.pool.get(player.model, version)[1])
        if not player.search:
            return cast("PlayerPolicy", policy)
        if self.search is None:
            raise ConfigError(f"{player.name!r} has search={player.search}, and these seats have none: set search=0")
        return self.search(policy, SearchSettings.at_play(player.search, gumbel=player.gumbel))


def version_of(pool: ReadPool, player: Player) -> int:
    """The number that it plays now; -1 for a bot, and for a learner that has learnt nothing yet."""
    if player.role == "bot":
        return NO_VERSION
    if player.version is not None:
        return player.version
    newest = pool.latest(str(player.model))
    return NO_VERSION if newest is None else newest


def search_with(game: str, game_args: Mapping[str, Any]) -> Callable[[Policy, SearchSettings], PlayerPolicy]:
    """`Seats.search`, by the rules of a game; it raises `ConfigError` where there are none."""

    def make(policy: Policy, settings: SearchSettings) -> PlayerPolicy:
        return SearchPlayer(policy, game, dict(game_args), settings)

    return make


@dataclass(frozen=True)
class Searching:
    """Seats in which every network that does not search by itself has so many simulations before each move."""

    seats: OpensPlayers
    simulations: int

    @property
    def action(self) -> ActionSpec:
        return self.seats.action

    def open(self, player: Player) -> PlayerPolicy:
        if self.simulations and not player.search and player.role != "bot":
            player = dataclasses.replace(player, search=self.simulations)
        return self.seats.open(player)
