"""OpenSpiel's own judgement of a strategy: an independent check of what is computed from tables.

nash_conv("openspiel:kuhn_poker", {}, table)       # table[information set, action], as `TabularGame` has them
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.envs.openspiel import library
from ludus.envs.openspiel.named import tree_of
from ludus.errors import MissingExtra

__all__ = ["nash_conv"]


def nash_conv(name: str, args: Mapping[str, Any], table: NDArray[np.float64]) -> float:
    """What both players together gain by the best response to the other, by OpenSpiel's `exploitability` module."""
    try:
        from open_spiel.python.algorithms import exploitability
        from open_spiel.python.policy import TabularPolicy
    except ImportError:
        raise MissingExtra("open_spiel", extra="openspiel") from None
    game, tree = library.load(name, args), tree_of(name, dict(args))
    number = {
        (int(tree.player[node]), tree.obs[node, tree.player[node]].tobytes()): info
        for info, node in enumerate(tree.info_node)
    }
    policy = TabularPolicy(game)
    for row, state in enumerate(policy.states):
        player = state.current_player()
        seen = np.asarray(library.observe(game, state, player), np.float32)
        policy.action_probability_array[row] = table[number[player, seen.tobytes()]]
    return float(exploitability.nash_conv(game, policy))
