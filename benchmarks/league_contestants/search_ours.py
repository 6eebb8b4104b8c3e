"""Ludus's tree search in self-play of Connect Four: the games of all boards are searched together."""

from __future__ import annotations

import numpy as np

from ludus.envs.boards.connect_four import ConnectFour
from ludus.learn.search.evaluator import Evaluate
from ludus.learn.search.search import TreeSearch
from ludus.learn.search.settings import SearchSettings


class OurSearch:
    """`num_games` games; those that end begin again."""

    def __init__(self, evaluate: Evaluate, *, num_games: int, simulations: int, seed: int = 0) -> None:
        self.rules = ConnectFour()
        self.evaluate = evaluate
        self.simulations = simulations
        self._search = TreeSearch(self.rules, SearchSettings(simulations=simulations))
        self._rng = np.random.default_rng(seed)
        self._state = self.rules.start(num_games)

    def move(self) -> int:
        """Search and move in all games. How many simulations that were."""
        found = self._search(self._state, self.evaluate, self._rng)
        after, _, over = self.rules.step(self._state, found.choose(self._rng))
        after[over] = self.rules.start(int(over.sum()))
        self._state = after
        return len(after) * self.simulations

    def visits(self, moves: list[int]) -> list[int]:
        """Of each column, in the position after these moves, one leaf at a time."""
        state = self.rules.start(1)
        for move in moves:
            state = self.rules.step(state, np.array([move]))[0]
        search = TreeSearch(self.rules, SearchSettings(simulations=self.simulations, leaves=1))
        return search(state, self.evaluate, self._rng).visits[0].astype(int).tolist()
