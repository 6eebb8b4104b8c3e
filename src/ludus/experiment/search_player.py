"""A policy that looks ahead before each move: stronger than by itself, and slower.

player = SearchPlayer(policy, game, game_args, SearchSettings.at_play(64))
action, _, _ = player.act(obs, None, first, rng, mask, boards=states)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import envs
from ludus.data.nest import Nest
from ludus.errors import ConfigError
from ludus.learn.policies.policy import Policy
from ludus.learn.search.evaluator import PolicyEvaluator
from ludus.learn.search.search import TreeSearch
from ludus.learn.search.settings import SearchSettings

__all__ = ["SearchPlayer"]

_TEMPERATURE = 0.25
"""Of moves that are drawn: one with half the visits of the best is drawn a sixteenth as often."""


class SearchPlayer:
    """The most visited move; where it is not `greedy`, one that has been visited about as often. Of Gumbel roots the
    move that is left; where it is not `greedy`, the noise is what differs from game to game.

    Raises `ConfigError` for a game without rules, and for a policy that a search cannot use.
    """

    state_spec: Nest = None
    needs_boards = True

    def __init__(self, policy: Policy, game: str, game_args: dict[str, Any], settings: SearchSettings) -> None:
        rules = envs.rules(game, **game_args)
        if rules is None:
            raise ConfigError(
                f"a search of {settings.simulations} simulations looks ahead by the rules of a game, and "
                f"{envs.without_rules(game)}. Leave the search out here: search=0, or a name without +search or +gumbel"
            )
        self.head = policy.head
        self._evaluate = PolicyEvaluator(policy, rules)
        self._search = TreeSearch(rules, settings)

    def initial_state(self, num_rows: int) -> Nest:
        return None

    def act(
        self,
        obs: Nest,
        state: Nest,
        first: NDArray[np.bool_],
        rng: np.random.Generator,
        mask: NDArray[np.bool_] | None = None,
        *,
        greedy: bool = False,
        boards: NDArray[np.int64] | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32], Nest]:
        """`boards`: the states, of games that are not over; a row for each observation."""
        if boards is None:
            raise ConfigError("this player looks ahead on the board: give it the states, as act(..., boards=states)")
        has_noise = self._search.settings.gumbel and not greedy
        found = self._search(boards, self._evaluate, rng, noise=has_noise)
        action = found.choose(rng, temperature=0.0 if greedy else _TEMPERATURE)
        return action, np.zeros(len(boards), np.float32), None
