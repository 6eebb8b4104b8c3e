"""A player: a model in a role. What each role means for matches and for learning is in `roles.py`."""

from __future__ import annotations

from dataclasses import dataclass

from ludus.errors import ConfigError
from ludus.spelling import nearest

__all__ = ["FIXED", "LEARNING", "ROLES", "Player"]

LEARNING = ("main", "main_exploiter", "league_exploiter")
"""A main agent becomes strong against all; exploiters look for what beats main agents, or anybody."""

FIXED = ("snapshot", "bot", "frozen")
"""A learner as it was; a program; weights from elsewhere."""

ROLES = (*LEARNING, *FIXED, "human")


@dataclass(frozen=True)
class Player:
    """Immutable: a player that changes is replaced by one with the same name."""

    name: str
    role: str = "main"
    model: str | None = None  # in the model pool; None: it has no network
    version: int | None = None  # of the model; None: the newest
    parent: str | None = None  # whose snapshot it is
    step: int = 0  # of its training; of a snapshot, when it was taken
    sides: tuple[int, ...] = ()  # that it can play; empty: all

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a player needs a name")
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
