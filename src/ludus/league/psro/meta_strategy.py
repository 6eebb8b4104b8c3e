"""Opponents from a mixture of all fixed players: an equilibrium of who scores what against whom.

rule = MetaStrategy("nash", min_games=100)
rule.mixture(players, payoff)                      # {"main-1": 0.4, "main-3": 0.6}
rule.choose("main", players, payoff, rng)          # one of them, by these probabilities; None: there is none yet
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.league import solvers
from ludus.league.payoff import Payoff
from ludus.league.players import Player
from ludus.spelling import nearest

__all__ = ["META_SOLVERS", "MetaStrategy"]

Floats = NDArray[np.float64]

_LEAST_SHARE = 1e-6  # below it a probability is rounding of a solver

META_SOLVERS: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType(
    {
        "nash": lambda matrix: solvers.nash(matrix).rows,
        "fictitious_play": lambda matrix: solvers.fictitious_play(matrix, 2000).rows,
        "replicator": lambda matrix: solvers.replicator(matrix, num_steps=2000, step_size=0.05).mean(0),
        "projected_replicator": lambda matrix: solvers.projected_replicator(matrix, num_steps=2000, step_size=0.05),
        "uniform": lambda matrix: np.full(len(matrix), 1.0 / len(matrix)),
    }
)
"""From `m[i, j] = -m[j, i]`, what `i` scores against `j`, to probabilities. `uniform` is fictitious self-play."""


@dataclass(frozen=True)
class MetaStrategy:
    """A fixed player belongs to it from when it has played `min_games` against each that came before and belongs to it.

    It is computed when results between fixed players have changed, and depends on them alone.
    """

    solver: str = "nash"
    min_games: float = 0.0
    _found: weakref.WeakKeyDictionary[Payoff, tuple[object, dict[str, float]]] = field(
        default_factory=weakref.WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.solver not in META_SOLVERS:
            raise ConfigError(f"meta_solver={self.solver!r}: {nearest(self.solver, META_SOLVERS)}")
        if self.min_games < 0.0:
            raise ConfigError(f"min_games={self.min_games}: it is 0 or more")

    def __reduce__(self) -> tuple[type[MetaStrategy], tuple[str, float]]:
        """A copy in another process computes for itself."""
        return MetaStrategy, (self.solver, self.min_games)

    def choose(self, player: str, candidates: Sequence[Player], payoff: Payoff, rng: np.random.Generator) -> str | None:
        mixture = self.mixture(candidates, payoff)
        if not mixture:
            return None
        return list(mixture)[int(rng.choice(len(mixture), p=list(mixture.values())))]

    def mixture(self, players: Sequence[Player], payoff: Payoff) -> dict[str, float]:
        """Probabilities by name, of those that have any; empty where nobody is fixed."""
        names = [each.name for each in players if each.is_fixed]
        revision = payoff.revision(names)
        known = self._found.get(payoff)
        if known is None or known[0] != revision:
            known = self._found[payoff] = revision, self._solve(names, payoff)
        return known[1]

    def _solve(self, names: Sequence[str], payoff: Payoff) -> dict[str, float]:
        met: list[str] = []
        for name in names:
            if all(payoff.record(name, other).games >= self.min_games for other in met):
                met.append(name)
        if not met:
            return {}
        scores = payoff.score_matrix(met)
        scores /= max(1.0, float(np.abs(scores).max()))  # replicators would overflow by scores in the thousands
        shares = META_SOLVERS[self.solver](scores)
        shares = np.where(shares < _LEAST_SHARE, 0.0, shares)
        shares = shares / shares.sum()
        return {name: float(share) for name, share in zip(met, shares, strict=True) if share > 0.0}
