"""AlphaZero's tree search, in many games at once. https://arxiv.org/abs/1712.01815

    search = TreeSearch(ConnectFour(), SearchSettings(simulations=64))
    found = search(states, PolicyEvaluator(policy, rules), rng)
    found.visits, found.policy, found.value            # of each game
    action = found.choose(rng, temperature=0.0)

A simulation goes down the trees of all games together, and all leaves are evaluated in one forward pass. Where games
are few, several leaves of each are: until they are evaluated each counts as a lost visit, so the next descent of the
same tree goes elsewhere. The end of a game counts as its rules have it.

The result follows from the states, the network and the generator alone. For games of two players, in which one wins
what the other loses: with more, every leaf would need a value for each player.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.core import Rules
from ludus.errors import ConfigError
from ludus.learn.search.evaluator import Evaluate
from ludus.learn.search.gumbel import GumbelRoot
from ludus.learn.search.leaves import Leaves
from ludus.learn.search.settings import MANY_GAMES, SearchSettings
from ludus.learn.search.trees import Trees

__all__ = ["SearchResult", "TreeSearch"]


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Of N games; `policy` is what to learn: the visits as probabilities, or the improved policy of a Gumbel root."""

    visits: NDArray[np.float32]  # [N, actions]
    policy: NDArray[np.float32]  # [N, actions]
    quality: NDArray[np.float32]  # [N, actions] for the player to move; -inf: illegal
    value: NDArray[np.float32]  # [N] for the player to move, by what was found
    halved: NDArray[np.int64] | None  # [N] the move that is left of a Gumbel root's

    def choose(self, rng: np.random.Generator, *, temperature: float = 1.0) -> NDArray[np.int64]:
        """A Gumbel root's own move; else one by `visits ** (1 / temperature)`, or of temperature 0 the most visited."""
        if self.halved is not None:
            return self.halved
        if temperature <= 0.0:
            # The qualities break ties. They are less than 1 apart where the result is at most a win.
            quality = np.where(self.visits > 0, np.clip(self.quality, -1.0, 1.0), 0.0)
            best: NDArray[np.int64] = (self.visits + 0.25 * quality).argmax(1)
            return best
        share = self.visits / self.visits.max(1, keepdims=True)
        cumulative = (share ** np.float32(1.0 / temperature)).cumsum(1)
        drawn = rng.random(len(share), np.float32) * cumulative[:, -1]
        chosen: NDArray[np.int64] = (cumulative > drawn[:, None]).argmax(1)
        return chosen


class TreeSearch:
    """Its arrays are kept for the next search."""

    def __init__(self, rules: Rules, settings: SearchSettings) -> None:
        if rules.num_players != 2:
            raise ConfigError(
                f"{rules.name} has {rules.num_players} players. A tree search is for games of 2, where what one wins "
                "the other loses"
            )
        self.rules = rules
        self.settings = settings
        self._trees = Trees(rules)
        self._leaves = Leaves(rules, self._trees, exploration=settings.exploration)

    def __call__(
        self, state: NDArray[np.int64], evaluate: Evaluate, rng: np.random.Generator, *, noise: bool = True
    ) -> SearchResult:
        """Look ahead from these boards, whose games are not over. `noise=False`: nothing is left to chance."""
        settings, trees, leaves = self.settings, self._trees, self._leaves
        if not len(state):
            return self._of_no_games()
        leaves.begin(evaluate)
        leaves.open(trees.plant(state, len(state) * (settings.simulations + 1)))
        if noise and settings.noise:
            self._add_noise(rng)
        gumbel = self._gumbel_root(rng, noise=noise) if settings.gumbel else None
        num_leaves = settings.num_leaves(len(state))
        if num_leaves == 1:
            self._search_one_by_one(gumbel)
            return self._result(gumbel)
        for first in range(0, settings.simulations, num_leaves):
            last = min(first + num_leaves, settings.simulations)
            descents = []
            for turn in range(first, last):
                descents.append(trees.descend(self._root_actions(gumbel, turn)))
                trees.count(descents[-1][0], lost=True)
            leaves.open(np.concatenate([new for _, new in descents]))
            for leaf, _ in descents:
                trees.settle(leaf)
        return self._result(gumbel)

    def _search_one_by_one(self, gumbel: GumbelRoot | None) -> None:
        """One leaf of each game at a time. Many games are enough rows to compute logits of half of them later."""
        trees, leaves = self._trees, self._leaves
        is_later = leaves.values_are_apart and trees.num_roots >= MANY_GAMES
        for turn in range(self.settings.simulations):
            actions = self._root_actions(gumbel, turn)
            leaf, new = trees.descend(actions, open_waiting=leaves.open_valued if is_later else None)
            if is_later:
                leaves.set_values(new)
            else:
                leaves.open(new)
            trees.count(leaf)

    def _root_actions(self, gumbel: GumbelRoot | None, turn: int) -> NDArray[np.int64] | None:
        trees = self._trees
        return None if gumbel is None else gumbel.choose(turn, trees.root_visits, trees.root_quality)

    def _gumbel_root(self, rng: np.random.Generator, *, noise: bool) -> GumbelRoot:
        trees = self._trees
        scores = trees.scores[: trees.num_roots]
        legal = np.isfinite(scores[:, 0])
        logits = np.log(scores[:, 1], out=np.full(legal.shape, -np.inf, np.float32), where=legal & (scores[:, 1] > 0))
        value = trees.value[: trees.num_roots] * trees.sign[: trees.num_roots]
        return GumbelRoot(self.settings, logits, value, rng, noise=noise)

    def _add_noise(self, rng: np.random.Generator) -> None:
        """To the roots' priors."""
        roots = np.arange(self._trees.num_roots)
        scores = self._trees.scores[: len(roots)].copy()
        legal = np.isfinite(scores[:, 0])
        drawn = rng.standard_gamma(self.settings.noise_alpha, legal.shape) + 1e-12
        drawn *= legal
        drawn /= drawn.sum(1, keepdims=True)
        share = self.settings.noise
        scores[:, 1] = (1.0 - share) * scores[:, 1] + share * self.settings.exploration * drawn
        self._trees.open(roots, scores)

    def _result(self, gumbel: GumbelRoot | None) -> SearchResult:
        trees = self._trees
        visits, quality = trees.root_visits.copy(), trees.root_quality.copy()
        num = visits.sum(1)
        own = trees.value[: trees.num_roots] * trees.sign[: trees.num_roots]
        value = (own + (visits * np.where(visits > 0, quality, np.float32(0.0))).sum(1)) / (np.float32(1.0) + num)
        return SearchResult(
            visits=visits,
            policy=visits / num[:, None] if gumbel is None else gumbel.policy(visits, quality),
            quality=quality,
            value=value,
            halved=None if gumbel is None else gumbel.action(visits, quality),
        )

    def _of_no_games(self) -> SearchResult:
        none = np.empty((0, self.rules.num_actions), np.float32)
        empty = np.empty(0, np.int64)
        halved = empty if self.settings.gumbel else None
        return SearchResult(visits=none, policy=none, quality=none, value=none[:, 0], halved=halved)
