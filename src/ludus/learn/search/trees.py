"""The trees of many games, in arrays that are made once.

All nodes are in one pool, in the order in which they were made: those that one step makes, for all games, are
neighbours, and are written as slices. An edge is `node * num_actions + action`. Of each edge there are

    quality   mean outcome for the player to move; before the first visit, the value of its node; illegal: -inf
    bonus     exploration * prior / (1 + visits)

side by side, so that PUCT reads a node's in one piece: `argmax(quality + bonus * sqrt(visits of the node))`. They are
kept up to date edge by edge. Values and rewards are player 0's; what one player wins the other loses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core import Rules

__all__ = ["OpenNodes", "Paths", "Trees"]

_UNSEEN = -1
"""Of `child`: there is no node yet."""
_CLOSED = -2
"""`_CLOSED - node`: there are no edges below this node, because its game is over or it waits to be opened."""

OpenNodes = Callable[[NDArray[np.int64]], None]
"""Gives these nodes their edges: calls `Trees.open`."""


class Paths(NamedTuple):
    """One descent in each tree: of every step of all of them, its node, its edge and its tree."""

    nodes: NDArray[np.int64]
    edges: NDArray[np.int64]
    tree: NDArray[np.int64]
    leaf: NDArray[np.int64]  # [trees] the node at the end


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
        self._flat_scores = self.scores.reshape(-1)
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
        at = _slice_of(nodes)
        self.value[at] = value * self.sign[at]

    def value_for_mover(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        value: NDArray[np.float32] = self.value.take(nodes) * self.sign.take(nodes)
        return value

    def open(self, nodes: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """From now on descents go on below these nodes. `scores [N, 2, actions]` is for edges without visits."""
        num_actions, at = self._num_actions, _slice_of(nodes)
        self.waits[at] = False
        self.visits[at] = self.root_of_visits[at] = 1.0
        self.scores[at] = scores
        self.prior.reshape(-1, num_actions)[at] = scores[:, 1]
        self.edge_visits.reshape(-1, num_actions)[at] = 0.0
        self.child.reshape(-1, num_actions)[at] = _UNSEEN
        if len(nodes) and nodes[0] >= self.num_roots:
            self.child[self.parent_edge[at]] = nodes

    # --- one descent of every tree

    def descend(
        self, root_actions: NDArray[np.int64] | None = None, *, open_waiting: OpenNodes | None = None
    ) -> tuple[Paths, NDArray[np.int64]]:
        """Down every tree to a node that is new, or at which descents end; which of the new ones are to be evaluated.

        `root_actions`: the moves at the roots, where PUCT does not choose them. `open_waiting`: opens nodes that wait
        for it when a descent comes to them, which then goes on; without it the descent ends there.
        """
        num_actions, num_trees = self._num_actions, self.num_roots
        nodes = tree = np.arange(num_trees)
        passed: list[tuple[NDArray[np.int64], ...]] = []
        action = root_actions
        while len(nodes):
            if action is None:
                action = self._best(nodes)
            edges = nodes * num_actions
            edges += action
            action = None
            below = self.child.take(edges)
            passed.append((nodes, edges, tree, below))
            goes_on = (below >= 0).nonzero()[0]
            nodes = below
            if len(goes_on) < len(below):
                nodes, tree = below.take(goes_on), tree.take(goes_on)
        nodes, edges, tree, below = (np.concatenate(parts) for parts in zip(*passed, strict=True))
        ends = (below < 0).nonzero()[0]
        at_end, last_edge = np.empty(num_trees, np.int64), np.empty(num_trees, np.int64)
        trees = tree.take(ends)
        at_end[trees], last_edge[trees] = below.take(ends), edges.take(ends)
        leaf = _CLOSED - at_end
        is_new = at_end == _UNSEEN
        if open_waiting is not None:
            waiting_trees = (self.waits.take(leaf) > is_new).nonzero()[0]  # of new ones `leaf` means nothing yet
            if len(waiting_trees):
                opened = leaf.take(waiting_trees)
                open_waiting(opened)
                below_opened = opened * num_actions
                below_opened += self._best(opened)
                nodes, edges = np.concatenate((nodes, opened)), np.concatenate((edges, below_opened))
                tree = np.concatenate((tree, waiting_trees))
                last_edge[waiting_trees] = below_opened
                is_new[waiting_trees] = True
        new_trees = is_new.nonzero()[0]
        leaf[new_trees], to_evaluate = self._grow(last_edge.take(new_trees))
        return Paths(nodes, edges, tree, leaf), to_evaluate

    def _best(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        scores = self.scores.take(nodes, axis=0)
        total = scores[:, 1]
        total *= self.root_of_visits.take(nodes)[:, None]
        total += scores[:, 0]
        best: NDArray[np.int64] = total.argmax(1)
        return best

    def _grow(self, edges: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """New nodes, at which descents end for now; and those whose game goes on, which are to be evaluated."""
        parent = edges // self._num_actions
        action = edges - parent * self._num_actions
        after, reward, over = self._rules.step(self.state.take(parent, axis=0), action)
        nodes = self._add(after, reward[:, 0] + self.reward.take(parent), over, parent_edge=edges)
        self.child[edges] = _CLOSED - nodes
        return nodes, nodes[~over]

    # --- what was found

    def count(self, paths: Paths) -> None:
        """One visit more along these paths, of what their leaves are worth."""
        self._count(paths, self._outcome(paths))

    def count_as_lost(self, paths: Paths) -> None:
        """A virtual loss: as `count`, but what is found there is not known yet. `settle` makes it good."""
        self._count(paths, np.float32(-1.0))

    def settle(self, paths: Paths) -> None:
        """Put the worth of the leaves in the place of virtual losses."""
        places = paths.nodes * self._num_actions
        places += paths.edges
        visits = self.edge_visits.take(paths.edges)
        self._flat_scores[places] += (self._outcome(paths) + np.float32(1.0)) / visits

    def _outcome(self, paths: Paths) -> NDArray[np.float32]:
        """`[steps]` of the paths, for who moved."""
        whole = self.reward.take(paths.leaf) + self.value.take(paths.leaf)
        outcome = whole.take(paths.tree)
        outcome -= self.reward.take(paths.nodes)
        outcome *= self.sign.take(paths.nodes)
        return outcome

    def _count(self, paths: Paths, outcome: NDArray[np.float32] | np.float32) -> None:
        """No edge is there twice: each tree has one path."""
        nodes, edges = paths.nodes, paths.edges
        passed = self.visits.take(nodes)
        passed += np.float32(1.0)
        self.visits[nodes] = passed
        self.root_of_visits[nodes] = np.sqrt(passed, out=passed)
        visits = self.edge_visits.take(edges)
        visits += np.float32(1.0)
        self.edge_visits[edges] = visits
        places = nodes * self._num_actions
        places += edges
        quality = self._flat_scores.take(places)
        quality += (outcome - quality) / visits
        self._flat_scores[places] = quality
        places += self._num_actions
        visits += np.float32(1.0)
        self._flat_scores[places] = self.prior.take(edges) / visits

    # --- roots

    @property
    def root_visits(self) -> NDArray[np.float32]:
        """`[trees, actions]`"""
        return self.edge_visits[: self.num_roots * self._num_actions].reshape(self.num_roots, self._num_actions)

    @property
    def root_quality(self) -> NDArray[np.float32]:
        """`[trees, actions]` for the player to move; -inf where illegal, the root's own value where not visited."""
        return self.scores[: self.num_roots, 0]


def _slice_of(nodes: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """The same nodes; neighbours, as those are that one step made, as a slice, which is written faster."""
    if len(nodes) and nodes[-1] - nodes[0] + 1 == len(nodes) and (nodes[1:] > nodes[:-1]).all():
        return slice(int(nodes[0]), int(nodes[-1]) + 1)
    return nodes
