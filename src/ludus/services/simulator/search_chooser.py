"""A simulator's chooser that looks ahead before each move, for algorithms that learn from what a search finds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import Rules, TimeStep
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.learn.policies.policy import Policy
from ludus.learn.search.evaluator import PolicyEvaluator
from ludus.learn.search.search import TreeSearch
from ludus.learn.search.settings import SearchSettings
from ludus.services.simulator.chooser import Acted

__all__ = ["SearchChooser"]

_LEAST = np.float32(1e-8)


class SearchChooser:
    """`Acted.extra` is the search's policy. It keeps nothing between moves: what it does next follows from the boards,
    the weights and the generator.
    """

    is_remote = False

    def __init__(self, policy: Policy, rules: Rules, settings: SearchSettings) -> None:
        self._evaluate = PolicyEvaluator(policy, rules)
        self._search = TreeSearch(rules, settings)
        self._num_actions, self._num_players = rules.num_actions, rules.num_players
        self.extra_spec: Nest = ArraySpec((rules.num_actions,), np.float32, 0, 1)

    def begin(self, now: TimeStep, state: Nest, rows: slice) -> Any:
        return now

    def finish(self, ticket: Any, rng: np.random.Generator) -> Acted:
        now: TimeStep = ticket
        rows = np.flatnonzero(now.active)  # of one board at most one, whose turn it is
        boards: NDArray[np.int64] = now.global_state[rows // self._num_players]
        found = self._search(boards, self._evaluate, rng)
        chosen = found.choose(rng, temperature=self._search.settings.temperature)
        num_rows = len(now.active)
        action = np.zeros(num_rows, np.int64)
        logp = np.zeros(num_rows, np.float32)
        policy = np.zeros((num_rows, self._num_actions), np.float32)
        action[rows] = chosen
        policy[rows] = found.policy
        logp[rows] = np.log(np.maximum(found.policy[np.arange(len(rows)), chosen], _LEAST))
        return Acted(action, logp, None, policy)
