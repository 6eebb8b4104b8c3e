"""A player: a model in a role. What each role means for matches and for learning is in `roles.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ludus.errors import ConfigError
from ludus.league.validation import expect
from ludus.spelling import nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ludus.data.nest import Nest

__all__ = ["BOTS", "FIXED", "LEARNING", "ROLES", "Player", "PlayerPolicy", "player_of", "player_to_nest"]

LEARNING = ("main", "main_exploiter", "league_exploiter")
"""A main agent becomes strong against all; exploiters look for what beats main agents, or anybody."""

FIXED = ("snapshot", "bot", "frozen")
"""A learner as it was; a program; weights from elsewhere."""

ROLES = (*LEARNING, *FIXED, "human")

BOTS = ("random", "alphabeta", "minimax")
"""Programs that come with the league, by the names that `bots.make_bot` knows. Any other bot is code of a user."""

_MAX_NAME = 1000  # in an arena it may be a path
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_MAX_SEARCH = 100_000  # simulations: a game of those takes minutes and hundreds of megabytes
_MAX_SHOWN = 60


def _shown(name: str) -> str:
    return repr(name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "…")


@dataclass(frozen=True)
class Player:
    """Immutable: a player that changes is replaced by one with the same name.

    `model` is the name of a model in the pool or, of a bot, of a program: `random`, `alphabeta:4`, `my_bots.py:make`.
    """

    name: str
    role: str = "main"
    model: str | None = None  # in the model pool; None: it has no network
    version: int | None = None  # of the model; None: the newest
    parent: str | None = None  # whose snapshot it is
    step: int = 0  # of its training; of a snapshot, when it was taken
    sides: tuple[int, ...] = ()  # that it can play; empty: all
    search: int = 0  # simulations of a tree search before each of its moves; 0: none
    num_resets: int = 0  # how often it, or its parent before that snapshot, went back to weights that nobody trained
    gumbel: bool = False  # by a Gumbel root

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a player needs a name")
        if len(self.name) > _MAX_NAME or not self.name.isprintable():
            raise ConfigError(
                f"name={_shown(self.name)}: a player's name is one line of at most {_MAX_NAME} characters"
            )
        if self.role in LEARNING:
            for what, name in (("name", self.name), ("model", self.model)):
                if name is not None and not _FILE_NAME.fullmatch(name):
                    raise ConfigError(
                        f"the {what} {_shown(name)} of a player that learns becomes the name of a folder: it is at "
                        "most 128 letters, digits, '_', '-' and '.', and begins with a letter or a digit"
                    )
        if not 0 <= self.search <= _MAX_SEARCH:
            raise ConfigError(f"search={self.search} of the player {self.name!r}: it is from 0 to {_MAX_SEARCH:,}")
        if self.search and self.role in ("bot", "human"):
            raise ConfigError(
                f"search={self.search} of the player {self.name!r}: a {self.role} has no network to search with"
            )
        if self.gumbel and not self.search:
            raise ConfigError(
                f"gumbel of the player {self.name!r} is about its search: give search=64, too, or neither"
            )
        if self.role not in ROLES:
            raise ConfigError(f"role={self.role!r} of the player {self.name!r}: {nearest(self.role, ROLES)}")

    @property
    def is_learning(self) -> bool:
        return self.role in LEARNING

    @property
    def is_fixed(self) -> bool:
        """It always plays alike, and can be met at any time."""
        return self.role in FIXED

    def can_play(self, side: int) -> bool:
        return not self.sides or side in self.sides


def player_to_nest(player: Player) -> Nest:
    """For the codec."""
    return {**vars(player), "sides": list(player.sides)}


def player_of(nest: Nest) -> Player:
    """Raises `ConfigError` or `DataError` for what is no player."""
    try:
        player = Player(**{**nest, "sides": tuple(nest.get("sides", ()))})
    except (AttributeError, TypeError) as error:
        raise ConfigError(f"this is no player: {error}") from None
    expect(str, name=player.name, role=player.role)
    expect((str, type(None)), model=player.model, parent=player.parent)
    expect((int, type(None)), version=player.version)
    expect(int, step=player.step, search=player.search, num_resets=player.num_resets)
    expect(bool, gumbel=player.gumbel)
    expect(int, **{f"side_{number}": side for number, side in enumerate(player.sides)})
    return player


class PlayerPolicy(Protocol):
    """What chooses for a player: a `Policy`, a bot, a search. Each row may be in an episode of its own."""

    state_spec: Nest  # of what it remembers of one row; `None`: nothing

    def act(
        self,
        obs: Nest,
        state: Nest,
        first: NDArray[np.bool_],
        rng: np.random.Generator,
        mask: NDArray[np.bool_] | None = None,
        *,
        greedy: bool = False,
    ) -> tuple[NDArray[Any], NDArray[np.float32], Nest]:
        """One action for each of N rows, its log-probability (0 where there is none), the state afterwards."""
        ...
