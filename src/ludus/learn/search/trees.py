"""The trees of many games, in arrays that are made once.

All nodes are in one pool, in the order in which they were made: those that one step makes, for all games, are
neighbours, and are written as slices. A node knows the edge above it, which is how results go up. An edge is
`node * num_actions + action`. Of each edge there are

    quality   mean outcome for the player to move; before the first visit, the value of its node; illegal: -inf
    bonus     exploration * prior / (1 + visits)

side by side, so that PUCT reads a node's in one piece: `argmax(quality + bonus * sqrt(visits of the node))`. They are
kept up to date edge by edge. Values and rewards are player 0's; what one player wins the other loses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ludus.core import Rules
from ludus.learn.search import loops

__all__ = ["OpenNodes", "Trees"]

OpenNodes = Callable[[NDArray[np.int64]], None]
"""Gives these nodes their edges: calls `Trees.open`."""

_PUCT = np.empty(0, np.int64)


class Trees:
    """Roots are the first nodes, one for each tree."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._num_actions = rules.num_actions
        self._allocate(0)

    def _allocate(self, capacity: int) -> None:
        num_edges = capacity * self._num_actions
        self.capacity = capacity
        self.num_nodes = self.num_roots = 0
        self.state: NDArray[np.int64] = np.empty((capacity, *self._rules.state.shape), np.int64)
        self.mover = np.empty(capacity, np.int64)
        self.sign = np.empty(capacity, np.float32)  # 1 where player 0 is to move, else -1
        self.reward = np.empty(capacity, np.float32)  # of player 0, on the way from the root
        self.value = np.empty(capacity, np.float32)  # of what comes after, for player 0
        self.visits = np.empty(capacity, np.float32)  # 1 more than of all its edges
        self.root_of_visits = np.empty(capacity, np.float32)
        self.parent_edge = np.empty(capacity, np.int64)
        self.waits = np.empty(capacity, np.bool_)  # its game goes on, and it has no edges yet
        self.scores = np.empty((capacity, 2, self._num_actions), np.float32)  # quality, bonus
        self.prior = np.empty(num_edges, np.float32)  # times `exploration`
        self.edge_visits = np.empty(num_edges, np.float32)
        self.child = np.empty(num_edges, np.int64)

    def plant(self, state: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
        """Forget all trees; roots, which are yet to be opened, and room for so many nodes."""
        if capacity > self.capacity:
            self._allocate(capacity)
        self.num_nodes, self.num_roots = 0, len(state)
        none = np.zeros(len(state), np.int64)
        return self._add(state, none.astype(np.float32), none.astype(np.bool_), parent_edge=none)

    def _add(
        self,
        state: NDArray[np.int64],
        reward: NDArray[np.float32],
        over: NDArray[np.bool_],
        *,
        parent_edge: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        new = slice(self.num_nodes, self.num_nodes + len(state))
        self.num_nodes = new.stop
        mover = self._rules.to_move(state)
        self.state[new] = state
        self.mover[new] = mover
        self.sign[new] = 1 - 2 * mover
        self.reward[new] = reward
        self.value[new] = 0.0
        self.parent_edge[new] = parent_edge
        np.logical_not(over, out=self.waits[new])
        return np.arange(new.start, new.stop)

    def set_value(self, nodes: NDArray[np.int64], value: NDArray[np.float32]) -> None:
        """`value` is for the mover of each."""
        self.value[nodes] = value * self.sign.take(nodes)

    def value_for_mover(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        value: NDArray[np.float32] = self.value.take(nodes) * self.sign.take(nodes)
        return value

    def open(self, nodes: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """From now on descents go on below these nodes. `scores [N, 2, actions]` is for edges without visits."""
        loops.open_nodes(
            nodes, scores, self.num_roots, self.scores, self.prior, self.edge_visits, self.child, self.visits,
            self.root_of_visits, self.waits, self.parent_edge,
        )  # fmt: skip

    # --- one descent of every tree

    def descend(
        self, root_actions: NDArray[np.int64] | None = None, *, open_waiting: OpenNodes | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Down every tree to a node that is new, or at which descents end; which of the new ones are to be evaluated.

        `root_actions`: the moves at the roots, where PUCT does not choose them. `open_waiting`: opens nodes that wait
        for it when a descent comes to them, which then goes on; without it the descent ends there.
        """
        actions = _PUCT if root_actions is None else root_actions
        last_edge, leaf = loops.descend(self.num_roots, actions, self.scores, self.root_of_visits, self.child)
        is_new = leaf < 0
        if open_waiting is not None:
            waiting = (self.waits.take(leaf) > is_new).nonzero()[0]  # where it is new there is no leaf to look at yet
            if len(waiting):
                opened = leaf.take(waiting)
                open_waiting(opened)
                last_edge[waiting] = loops.best_edges(opened, self.scores, self.root_of_visits)
                is_new[waiting] = True
        new = is_new.nonzero()[0]
        leaf[new], to_evaluate = self._grow(last_edge.take(new))
        return leaf, to_evaluate

    def _grow(self, edges: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """New nodes, at which descents end for now; and those whose game goes on, which are to be evaluated."""
        parent = edges // self._num_actions
        action = edges - parent * self._num_actions
        after, reward, over = self._rules.step(self.state.take(parent, axis=0), action)
        nodes = self._add(after, reward[:, 0] + self.reward.take(parent), over, parent_edge=edges)
        self.child[edges] = loops.CLOSED - nodes
        return nodes, nodes[~over]

    # --- what was found

    def count(self, leaf: NDArray[np.int64], *, lost: bool = False) -> None:
        """One visit more of every step to these leaves, of what they are worth.

        `lost`: a virtual loss, because that is not known yet; `settle` makes it good.
        """
        loops.count(
            leaf, lost, self.num_roots, self.scores, self.prior, self.edge_visits, self.visits, self.root_of_visits,
            self.parent_edge, self.reward, self.value, self.sign,
        )  # fmt: skip

    def settle(self, leaf: NDArray[np.int64]) -> None:
        """Put the worth of the leaves in the place of virtual losses."""
        loops.settle(
            leaf, self.num_roots, self.scores, self.edge_visits, self.parent_edge, self.reward, self.value, self.sign
        )

    # --- roots

    @property
    def root_visits(self) -> NDArray[np.float32]:
        """`[trees, actions]`"""
        return self.edge_visits[: self.num_roots * self._num_actions].reshape(self.num_roots, self._num_actions)

    @property
    def root_quality(self) -> NDArray[np.float32]:
        """`[trees, actions]` for the player to move; -inf where illegal, the root's own value where not visited."""
        return self.scores[: self.num_roots, 0]
