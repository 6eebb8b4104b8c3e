"""What a role means: whom a player meets, when a snapshot is taken of it, and whether it then begins again.

The defaults are AlphaStar's: https://www.nature.com/articles/s41586-019-1724-z
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np

from ludus.errors import ConfigError
from ludus.league.matchmaking import ExploitMain, MatchmakingRule, Mixed, Pfsp, SelfPlay, Verification
from ludus.league.payoff import Payoff
from ludus.league.players import Player

__all__ = ["DEFAULT_RULES", "TARGETS", "RoleRules", "SnapshotRule", "Targets", "fixed_players", "main_agents"]


@dataclass(frozen=True, kw_only=True)
class SnapshotRule:
    """A snapshot is taken after `timeout_steps`, or after `min_steps` if it beats all that it learns to beat.

    Beating means a win rate whose interval, `z` standard errors wide on either side, is above `win_rate`.
    """

    min_steps: int = 0
    timeout_steps: int = 0  # 0: never by steps alone
    win_rate: float = 0.7
    z: float = 1.96

    def __post_init__(self) -> None:
        if not (self.min_steps >= 0 and self.timeout_steps >= 0) or 0 < self.timeout_steps < self.min_steps:
            raise ConfigError(f"min_steps={self.min_steps}, timeout_steps={self.timeout_steps}: 0 ≤ least ≤ most")
        if not 0.0 <= self.win_rate <= 1.0:
            raise ConfigError(f"win_rate={self.win_rate}: it is between 0 and 1")
        if not 0.0 <= self.z < math.inf:
            raise ConfigError(f"z={self.z}: it is 0 or more, as 1.96 for 95 % of confidence")

    def is_due(self, player: str, targets: Sequence[str], payoff: Payoff, num_steps: int) -> bool:
        """`num_steps` since the last one, or since it began."""
        if self.timeout_steps and num_steps >= self.timeout_steps:
            return True
        if num_steps < self.min_steps or not targets:
            return False
        return all(payoff.record(player, target).interval(self.z)[0] > self.win_rate for target in targets)


class Targets(Protocol):
    """Whom a player learns to beat."""

    def __call__(self, player: Player, players: Sequence[Player]) -> list[str]: ...


def fixed_players(player: Player, players: Sequence[Player]) -> list[str]:
    return [each.name for each in players if each.is_fixed]


def main_agents(player: Player, players: Sequence[Player]) -> list[str]:
    return [each.name for each in players if each.role == "main" and each.name != player.name]


TARGETS: Mapping[str, Targets] = MappingProxyType({"fixed": fixed_players, "main": main_agents})
"""By the name that settings have for them: all that learn no more, or main agents."""


@dataclass(frozen=True, kw_only=True)
class RoleRules:
    """`reset`: the probability that after a snapshot it begins again, from weights that nobody has trained.

    `share`: how much of the training it gets, where learners take turns; one with 2 twice as much as one with 1.
    """

    matchmaking: MatchmakingRule
    snapshot: SnapshotRule
    targets: Targets = fixed_players
    reset: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.share < math.inf:
            raise ConfigError(f"share={self.share}: it is more than 0")
        if not 0.0 <= self.reset <= 1.0:
            raise ConfigError(f"reset={self.reset}: it is a probability")

    def is_reset(self, rng: np.random.Generator) -> bool:
        return bool(rng.random() < self.reset)


DEFAULT_RULES: Mapping[str, RoleRules] = MappingProxyType(
    {
        "main": RoleRules(
            matchmaking=Mixed({Pfsp("squared"): 0.5, SelfPlay(): 0.35, Verification(): 0.15}),
            snapshot=SnapshotRule(min_steps=100_000, timeout_steps=200_000),
        ),
        "main_exploiter": RoleRules(
            matchmaking=ExploitMain(),
            snapshot=SnapshotRule(min_steps=100_000, timeout_steps=400_000),
            targets=main_agents,
            reset=1.0,
        ),
        "league_exploiter": RoleRules(
            matchmaking=Mixed({Pfsp("capped"): 1.0}),
            snapshot=SnapshotRule(min_steps=100_000, timeout_steps=400_000),
            reset=0.25,
        ),
    }
)
