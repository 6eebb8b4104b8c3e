"""Who meets whom next: rules that choose an opponent, from results so far and a random generator.

    rule = Mixed({Pfsp("squared"): 0.5, SelfPlay(): 0.35, Verification(): 0.15})
    rule.choose("main", candidates, payoff, rng)       # the name of an opponent, or None: nobody fits

Prioritised fictitious self-play (PFSP), self-play and verification are AlphaStar's:
https://www.nature.com/articles/s41586-019-1724-z
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.league.payoff import Payoff
from ludus.league.players import Player
from ludus.spelling import nearest

__all__ = [
    "WEIGHTINGS",
    "ExploitMain",
    "Itself",
    "Latest",
    "MatchmakingRule",
    "Mixed",
    "Pfsp",
    "SelfPlay",
    "Uniform",
    "Verification",
    "least_played",
    "pfsp",
]

Floats = NDArray[np.float64]

WEIGHTINGS: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType(
    {
        "variance": lambda rate: rate * (1.0 - rate),  # those it is as strong as
        "linear": lambda rate: 1.0 - rate,
        "capped": lambda rate: np.minimum(0.5, 1.0 - rate),  # all that it does not beat, alike
        "squared": lambda rate: np.square(1.0 - rate),  # those it loses to
    }
)


class MatchmakingRule(Protocol):
    """Chooses an opponent for `player` among the candidates, of whom it may be one itself."""

    def choose(self, player: str, candidates: Sequence[Player], payoff: Payoff, rng: np.random.Generator) -> str | None:
        """A candidate's name. None: nobody fits this rule now."""
        ...


def pfsp(win_rates: Floats, weighting: str = "squared") -> Floats:
    """Probabilities of opponents by the win rates against them; uniform where none has a weight."""
    weigh = WEIGHTINGS.get(weighting)
    if weigh is None:
        raise ConfigError(f"weighting={weighting!r}: {nearest(weighting, WEIGHTINGS)}")
    weights = weigh(np.asarray(win_rates, np.float64))
    total = weights.sum()
    return weights / total if total > 0.0 else np.full(len(weights), 1.0 / len(weights))


def _one_of(
    player: str,
    candidates: Sequence[Player],
    payoff: Payoff,
    rng: np.random.Generator,
    weighting: str,
) -> str | None:
    if not candidates:
        return None
    probabilities = pfsp(payoff.win_rates(player, [each.name for each in candidates]), weighting)
    return candidates[drawn(probabilities, rng)].name


def drawn(weights: Floats, rng: np.random.Generator) -> int:
    """An index, as likely as its weight. (`rng.choice` checks so much that it takes ten times as long.)"""
    cumulative = np.cumsum(weights)
    return min(int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")), len(cumulative) - 1)


@dataclass(frozen=True)
class Pfsp:
    """One that learns no more, the likelier the harder it is to beat."""

    weighting: str = "squared"

    def __post_init__(self) -> None:
        pfsp(np.zeros(1), self.weighting)

    def choose(self, player: str, candidates: Sequence[Player], payoff: Payoff, rng: np.random.Generator) -> str | None:
        return _one_of(player, [each for each in candidates if each.is_fixed], payoff, rng, self.weighting)


@dataclass(frozen=True)
class Uniform:
    """Any that learns no more, all alike."""

    def choose(self, player: str, candidates: Sequence[Player], payoff: Payoff, rng: np.random.Generator) -> str | None:
        names = [each.name for each in candidates if each.is_fixed]
        return names[int(rng.integers(len(names)))] if names else None


@dataclass(frozen=True)
class Latest:
    """The newest of the player's own snapshots."""

    def choose(self, player: str, candidates: Sequence[Player], payoff: Payoff, rng: np.random.Generator) -> str | None:
        own = [each for each in candidates if each.is_fixed and each.parent == player]
        return max(own, key=lambda each: each.step).name if own else None


@dataclass(frozen=True)
class Itself:
    """Nobody but the player itself, as it is now."""

    def choose(self, player: str, candidates: Sequence[Player], payoff: Payoff, rng: np.random.Generator) -> str | None:
        return player if any(each.name == player for each in candidates) else None


@dataclass(frozen=True)
class SelfPlay:
    """A main agent: itself, or another that it can hold its own against.

    Of an opponent that it beats in less than `least` of their matches it meets snapshots instead, those first that it
    has about equal chances against: one learns little from always losing.
    """

    least: float = 0.3

    def choose(self, player: str, candidates: Sequence[Player], payoff: Payoff, rng: np.random.Generator) -> str | None:
        mains = [each.name for each in candidates if each.role == "main"]
        if not mains:
            return None
        opponent = mains[int(rng.integers(len(mains)))]
        if opponent == player or payoff.win_rate(player, opponent) >= self.least:
            return opponent
        snapshots = [each for each in candidates if each.is_fixed and each.parent == opponent]
        return _one_of(player, snapshots, payoff, rng, "variance") or opponent


@dataclass(frozen=True)
class ExploitMain:
    """A main agent or, where it wins too seldom to learn by it, snapshots of one."""

    least: float = 0.1

    def choose(self, player: str, candidates: Sequence[Player], payoff: Payoff, rng: np.random.Generator) -> str | None:
        mains = [each for each in candidates if each.role == "main" and each.name != player]
        if not mains:
            return None
        opponent = mains[int(rng.integers(len(mains)))].name
        if payoff.win_rate(player, opponent) >= self.least:
            return opponent
        snapshots = [each for each in candidates if each.is_fixed and each.parent == opponent]
        return _one_of(player, snapshots, payoff, rng, "variance") or opponent


@dataclass(frozen=True)
class Verification:
    """A snapshot that the player has forgotten how to beat: of an exploiter, or of itself."""

    least_of_exploiters: float = 0.3  # win rates below which they are met
    least_of_own: float = 0.7

    def choose(self, player: str, candidates: Sequence[Player], payoff: Payoff, rng: np.random.Generator) -> str | None:
        forgotten = [
            each
            for each in candidates
            if each.is_fixed
            and payoff.win_rate(player, each.name)
            < (self.least_of_own if each.parent == player else self.least_of_exploiters)
        ]
        return _one_of(player, forgotten, payoff, rng, "squared")


@dataclass(frozen=True)
class Mixed:
    """One of several rules, drawn by their shares; where nobody fits it, another of them."""

    rules: Mapping[MatchmakingRule, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shares = list(self.rules.values())
        if not shares or min(shares) < 0.0 or not sum(shares) > 0.0:
            raise ConfigError(f"the shares of matchmaking rules are {shares}: none may be negative, one is above 0")

    def choose(self, player: str, candidates: Sequence[Player], payoff: Payoff, rng: np.random.Generator) -> str | None:
        left = [(rule, share) for rule, share in self.rules.items() if share > 0.0]
        while left:
            point = rng.random() * sum(share for _, share in left)
            number = 0
            while number < len(left) - 1 and point >= left[number][1]:
                point -= left[number][1]
                number += 1
            rule, _ = left.pop(number)
            if (opponent := rule.choose(player, candidates, payoff, rng)) is not None:
                return opponent
        return None


def least_played(
    pairs: Sequence[tuple[str, str]], payoff: Payoff, rng: np.random.Generator
) -> Iterator[tuple[str, str]]:
    """For evaluations: again and again one of the pairs that met least; those in flight, or given here, have met."""
    games = payoff.games_of(pairs)
    while True:
        chosen = int(rng.choice(np.flatnonzero(games == games.min())))
        games[chosen] += 1.0
        yield pairs[chosen]
