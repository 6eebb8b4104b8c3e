"""How a tree search looks for moves. (Without torch: a command line shows them before it needs any.)"""

from __future__ import annotations

from dataclasses import dataclass

from ludus.errors import ConfigError

__all__ = ["MANY_GAMES", "SearchSettings"]

_MAX_SIMULATIONS = 100_000  # their trees take hundreds of megabytes


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """`gumbel` decides by sequential halving which moves are tried at the root, and how the search's policy is made of
    what was found. Without it the root is like every other node, but for noise.
    """

    simulations: int = 64
    exploration: float = 1.25  # PUCT's constant
    leaves: int = 0  # of one game that are evaluated at once, apart by virtual loss; 0: more than 1 where games are few
    noise: float = 0.0  # what part of the root's priors is drawn from a Dirichlet distribution
    noise_alpha: float = 1.0  # its parameter: the smaller, the fewer moves get most of it
    temperature: float = 1.0  # of the moves that are drawn by visits, in training
    gumbel: bool = False
    considered: int = 16  # moves that are tried at a Gumbel root, at most
    sharpness: float = 0.1  # how much a difference of values counts in a Gumbel root's policy

    def __post_init__(self) -> None:
        for name, least in (("simulations", 1), ("leaves", 0), ("considered", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)} of a tree search must be {least} or more")
        if self.simulations > _MAX_SIMULATIONS:
            raise ConfigError(f"simulations={self.simulations} of a tree search must be at most {_MAX_SIMULATIONS:,}")
        if not 0.0 <= self.noise <= 1.0:
            raise ConfigError(f"noise={self.noise} of a tree search must be from 0 to 1")
        if self.temperature < 0.0:
            raise ConfigError(f"temperature={self.temperature} of a tree search must be 0 or more")
        for name in ("exploration", "noise_alpha", "sharpness"):
            if not getattr(self, name) > 0.0:
                raise ConfigError(f"{name}={getattr(self, name)} of a tree search must be more than 0")
        if self.gumbel and self.noise:
            raise ConfigError("a Gumbel root has noise of its own: set noise=0, or gumbel=no")

    @classmethod
    def at_play(cls, simulations: int, *, gumbel: bool = False) -> SearchSettings:
        """Of a player that looks ahead in its games. A Gumbel root weighs values more there than in training."""
        return cls(simulations=simulations, gumbel=gumbel, sharpness=_SHARPNESS_AT_PLAY)

    def num_leaves(self, num_games: int) -> int:
        """Leaves of each game in one forward pass."""
        if self.leaves:
            return min(self.leaves, self.simulations)
        return max(1, min(MANY_GAMES // max(1, num_games), self.simulations // _WAVES))


MANY_GAMES = 32
"""Rows of a forward pass that are worth more than what virtual losses spoil."""
_SHARPNESS_AT_PLAY = 1.0  # with 0.1, as in training, Gumbel roots lose to PUCT's; with 1 they win (decision 27)
_WAVES = 16  # of a search, at least: later ones know what earlier ones found
