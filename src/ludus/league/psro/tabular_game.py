"""Exact answers in a small game: what mixtures of strategies are worth, and what plays best against them.

    game = TabularGame(tree_of("openspiel:kuhn_poker", {}))
    average = game.average([table, other], [0.3, 0.7])
    response = game.best_response(average)
    game.nash_conv(average)                            # 0 at an equilibrium

A strategy is a table `[information sets, actions]` of probabilities. It is for both sides of the game: what a player
knows tells which side it is on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.envs.openspiel.tree import OVER, GameTree
from ludus.errors import ConfigError

__all__ = ["TabularGame"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class TabularGame:
    """Of two players with perfect recall, of which one gains what the other loses."""

    def __init__(self, tree: GameTree) -> None:
        if tree.num_players != 2 or np.abs(tree.returns.sum(1)).max() > 1e-9:
            raise ConfigError("exact answers are for games of two players in which one gains what the other loses")
        self.tree = tree
        self._parent, self._action, self._chance = _edges(tree)
        depth = np.zeros(len(tree.player), np.int64)
        for node in np.flatnonzero(self._parent >= 0):  # each after its parent
            depth[node] = depth[self._parent[node]] + 1
        self._levels = [np.flatnonzero(depth == each) for each in range(depth.max() + 1)]
        self._over = tree.player == OVER
        self.info_player = tree.player[tree.info_node]
        self.info_legal = tree.legal[tree.info_node]

    def uniform(self) -> Floats:
        """Any legal action, all alike."""
        found: Floats = self.info_legal / self.info_legal.sum(1, keepdims=True)
        return found

    def value(self, one: Floats, two: Floats) -> float:
        """What `one` gets against `two` where it is as likely on either side."""
        return 0.5 * (self._value(one, two) - self._value(two, one))

    def _value(self, first: Floats, second: Floats) -> float:
        weight = self._reach(first)[:, 0] * self._reach(second)[:, 1] * self._chance
        return float(weight[self._over] @ self.tree.returns[self._over, 0])

    def average(self, tables: Sequence[Floats], weights: Sequence[float]) -> Floats:
        """The strategy that plays as the mixture does, which draws one of them before each game.

        At an information set each counts by how likely it is to come there. Where none comes, it is uniform.
        """
        info_node, total = self.tree.info_node, np.zeros(self.info_legal.shape)
        for table, weight in zip(tables, weights, strict=True):
            reach = self._reach(table)[info_node, self.info_player]
            total += weight * reach[:, None] * table
        mass = total.sum(1, keepdims=True)
        found: Floats = np.where(mass > 0.0, total / np.where(mass > 0.0, mass, 1.0), self.uniform())
        return found

    def best_response(self, table: Floats) -> Floats:
        """A strategy, on both sides, that no other does better than against `table`."""
        found = np.zeros(self.info_legal.shape)
        for player in (0, 1):
            found += self._respond(table, player)[0]
        return found

    def nash_conv(self, table: Floats) -> float:
        """What both sides together gain by the best response to the other."""
        return sum(self._respond(table, player)[1] for player in (0, 1))

    def _reach(self, table: Floats) -> Floats:
        """`[N, 2]` the part of each player in how likely a node is."""
        reach = np.ones((len(self._parent), 2))
        for nodes in self._levels[1:]:
            parents = self._parent[nodes]
            reach[nodes] = reach[parents]
            reach[nodes, self.tree.player[parents]] *= table[self.tree.info[parents], self._action[nodes]]
        return reach

    def _respond(self, table: Floats, player: int) -> tuple[Floats, float]:
        """Upwards from the end: values of nodes are weighted by chance and by the other's part in reaching them."""
        tree = self.tree
        values = np.where(self._over, self._chance * self._reach(table)[:, 1 - player] * tree.returns[:, player], 0.0)
        response = np.zeros(self.info_legal.shape)
        for nodes in reversed(self._levels[1:]):
            parents = self._parent[nodes]
            infos, actions = tree.info[parents], self._action[nodes]
            is_own = tree.player[parents] == player
            of_actions = np.zeros(self.info_legal.shape)
            np.add.at(of_actions, (infos[is_own], actions[is_own]), values[nodes[is_own]])
            chosen = np.unique(infos[is_own])
            best = np.where(self.info_legal[chosen], of_actions[chosen], -np.inf).argmax(1)
            response[chosen, best] = 1.0
            counts = np.where(is_own, response[infos, actions], 1.0)
            np.add.at(values, parents, counts * values[nodes])
        return response, float(values[self._levels[0]].sum())


def _edges(tree: GameTree) -> tuple[Ints, Ints, Floats]:
    """Of each node its parent (-1: a game begins there), the action that leads to it, and all chance on the way."""
    num_nodes = len(tree.player)
    parent, action = np.full(num_nodes, -1), np.zeros(num_nodes, np.int64)
    chance = np.ones(num_nodes)
    begins = slice(tree.first[tree.start], tree.first[tree.start + 1])
    chance[tree.outcome[begins]] = tree.probability[begins]
    for node in range(num_nodes):
        for each in np.flatnonzero(tree.lottery[node] >= 0):
            lottery = tree.lottery[node, each]
            reached = slice(tree.first[lottery], tree.first[lottery + 1])
            children = tree.outcome[reached]
            parent[children], action[children] = node, each
            chance[children] = chance[node] * tree.probability[reached]
    return parent, action, chance
