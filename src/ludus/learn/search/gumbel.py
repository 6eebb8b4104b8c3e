"""A root by Gumbel's trick: the moves that are tried, and the policy that is learnt from, are better than the priors
even after few simulations. https://openreview.net/forum?id=bERaNdoegnO

As many moves as are considered are drawn without replacement; sequential halving gives each the same number of visits,
then half of them twice as many, and so on.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ludus.learn.search.settings import SearchSettings

__all__ = ["GumbelRoot", "halving_visits"]

_FEWEST_VISITS = 50.0  # as the paper has it: values count from the beginning
_NEVER = np.float32(-np.inf)


class GumbelRoot:
    """Of many trees: `logits` are their priors' logarithms, -inf where illegal; `noise=False` leaves chance out."""

    def __init__(
        self,
        settings: SearchSettings,
        logits: NDArray[np.float32],
        value: NDArray[np.float32],
        rng: np.random.Generator,
        *,
        noise: bool = True,
    ) -> None:
        self._logits = logits
        self._legal = np.isfinite(logits)
        self._value = value
        self._sharpness = np.float32(settings.sharpness)
        self._drawn = logits + rng.gumbel(size=logits.shape).astype(np.float32) if noise else logits
        num_legal = self._legal.sum(1)
        self._considered = np.minimum(num_legal, settings.considered)
        most = int(self._considered.max(initial=1))
        self._turns = np.stack([halving_visits(number, settings.simulations) for number in range(most + 1)])

    def choose(self, turn: int, visits: NDArray[np.float32], quality: NDArray[np.float32]) -> NDArray[np.int64]:
        """The move at each root in this simulation: of those that have had so many visits as it asks for, the best."""
        wanted = self._turns[self._considered, turn]
        score = self._drawn + self._weighted(visits, quality)
        # A move that has as many, and is not among those considered, never scores higher than they did.
        score[visits != wanted[:, None]] = _NEVER
        best: NDArray[np.int64] = score.argmax(1)
        return best

    def action(self, visits: NDArray[np.float32], quality: NDArray[np.float32]) -> NDArray[np.int64]:
        """The best of the most visited moves."""
        score = self._drawn + self._weighted(visits, quality)
        score[visits != visits.max(1, keepdims=True)] = _NEVER
        best: NDArray[np.int64] = score.argmax(1)
        return best

    def policy(self, visits: NDArray[np.float32], quality: NDArray[np.float32]) -> NDArray[np.float32]:
        """`[trees, actions]` the priors, improved by what was found."""
        logits = self._logits + self._weighted(visits, quality)
        logits -= logits.max(1, keepdims=True)
        policy: NDArray[np.float32] = np.exp(logits)
        policy /= policy.sum(1, keepdims=True)
        return policy

    def _weighted(self, visits: NDArray[np.float32], quality: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the values add to the logits. One that is not known is what is known of the others, by their priors."""
        seen = visits > 0
        prior = np.exp(self._logits)
        weight = np.where(seen, prior, np.float32(0.0))
        known = np.where(seen, quality, np.float32(0.0))
        total = weight.sum(1)
        mean = (weight * known).sum(1) / np.maximum(total, np.float32(1e-12))
        num = visits.sum(1)
        mixed = (self._value + num * np.where(total > 0, mean, np.float32(0.0))) / (np.float32(1.0) + num)
        completed = np.where(seen, known, mixed[:, None])
        scale = self._sharpness * (np.float32(_FEWEST_VISITS) + visits.max(1))
        weighted: NDArray[np.float32] = scale[:, None] * completed * np.float32(0.5)  # a win is 1 above a loss
        return weighted


def halving_visits(num_considered: int, num_simulations: int) -> NDArray[np.float32]:
    """`[simulations]` how many visits the move has had that each of them is for."""
    if num_considered <= 1:
        return np.arange(num_simulations, dtype=np.float32)
    num_rounds = math.ceil(math.log2(num_considered))
    turns: list[int] = []
    so_far, num_left = 0, num_considered
    while len(turns) < num_simulations:
        each = max(1, num_simulations // (num_rounds * num_left))
        for visits in range(so_far, so_far + each):
            turns.extend([visits] * num_left)
        so_far += each
        num_left = max(2, num_left // 2)
    return np.array(turns[:num_simulations], np.float32)
