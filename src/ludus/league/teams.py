"""Which sides of a game one player plays together: from sides, as envs have them, to teams, as results have them.

    teams = Teams(4, ((0, 2), (1, 3)))
    teams.by_side(("main", "rock"))                    # ("main", "rock", "main", "rock")
    teams.scores((1.0, 0.0, 1.0, -2.0))                # [2.0, -2.0]: those of its sides are added

Without teams each side is one by itself, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ludus.errors import ConfigError

__all__ = ["Teams", "parse_teams"]

T = TypeVar("T")


@dataclass(frozen=True)
class Teams:
    """`sides` of each team; empty: each side is a team."""

    num_sides: int
    sides: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.sides:
            object.__setattr__(self, "sides", tuple((side,) for side in range(self.num_sides)))
        if sorted(side for team in self.sides for side in team) != list(range(self.num_sides)):
            raise ConfigError(
                f"teams={self.sides}: each of the sides 0 to {self.num_sides - 1} belongs to one team, and to no other"
            )
        if len(self.sides) < 2:
            raise ConfigError(f"teams={self.sides}: a match has 2 teams or more")

    @property
    def num(self) -> int:
        return len(self.sides)

    def by_side(self, by_team: Sequence[T]) -> tuple[T, ...]:
        """From one of each team to one of each side."""
        found = {side: each for team, each in zip(self.sides, by_team, strict=True) for side in team}
        return tuple(found[side] for side in range(self.num_sides))

    def by_team(self, by_side: Sequence[T]) -> tuple[T, ...]:
        """From one of each side to one of each team: that of its first side."""
        return tuple(by_side[team[0]] for team in self.sides)

    def scores(self, by_side: Sequence[float]) -> list[float]:
        """Of each team: the sum of its sides' scores."""
        return [sum(by_side[side] for side in team) for team in self.sides]


def parse_teams(text: str) -> tuple[tuple[int, ...], ...]:
    """`0+2,1+3` → `((0, 2), (1, 3))`; empty: none. Raises `ConfigError`."""
    try:
        return tuple(tuple(int(side) for side in team.split("+")) for team in text.split(",") if team.strip())
    except ValueError:
        raise ConfigError(f"teams={text!r}: write the sides of each team as in 0+2,1+3") from None
