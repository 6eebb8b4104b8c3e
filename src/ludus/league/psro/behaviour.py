"""What a policy does, as numbers: the probabilities of its actions, in any situation or in all of a small game.

table = table_of(policy, game)                     # [information sets, actions], for `TabularGame`
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.data.actions import Discrete
from ludus.data.nest import Nest
from ludus.errors import ConfigError
from ludus.league.psro.tabular_game import TabularGame
from ludus.learn.policies.policy import Policy

__all__ = ["probabilities", "table_of"]


def probabilities(policy: Policy, obs: Nest, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """`[N, actions]`, by the rows of `obs` and `mask`. For policies without state whose outputs are logits."""
    if policy.is_recurrent or not isinstance(policy.spec.action, Discrete) or policy.spec.head is not None:
        raise ConfigError("only policies with one discrete action and no recurrent state are a table of probabilities")
    logits, _ = policy.runner()(obs, None, np.ones(len(mask), np.bool_))
    allowed = np.where(mask, np.asarray(logits, np.float64), -np.inf)
    weights = np.exp(allowed - allowed.max(1, keepdims=True))
    found: NDArray[np.float64] = weights / weights.sum(1, keepdims=True)
    return found


def table_of(policy: Policy, game: TabularGame) -> NDArray[np.float64]:
    """A strategy of the whole game."""
    tree = game.tree
    return probabilities(policy, tree.obs[tree.info_node, game.info_player], game.info_legal)
