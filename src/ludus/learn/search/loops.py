"""The loops of a tree search over trees, nodes and edges, compiled by Numba.

What they work on is described in `trees.py`, `positions.py` and `twin_forward.py`. Games and products of matrices stay
NumPy's: those are one call for all rows. Compiled code is kept on disk: the first search on a machine waits some
seconds for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ludus.errors import MissingExtra

try:
    import numba
except ImportError:
    raise MissingExtra("Numba, which tree search is compiled by,", extra="league") from None

__all__ = [
    "CLOSED", "UNSEEN", "add_bias", "best_edges", "count", "descend", "find", "first_layer", "first_of_each",
    "open_nodes", "scores_of", "settle",
]  # fmt: skip

UNSEEN = -1
"""Of `child`: there is no node yet."""
CLOSED = -2
"""`CLOSED - node`: there are no edges below this node, because its game is over or it waits to be opened."""

_Floats = NDArray[np.float32]
_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]
_F = TypeVar("_F", bound=Callable[..., Any])
_ONE = np.float32(1.0)


def _compiled(function: _F) -> _F:
    try:
        return numba.njit(cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # neither the package's folder nor the user's can be written
        return numba.njit(function)  # type: ignore[no-any-return]


@_compiled
def _best_edge(node: int, scores: _Floats, root_of_visits: _Floats) -> int:
    """PUCT: of equal edges the first."""
    root, num_actions = root_of_visits[node], scores.shape[2]
    best, chosen = np.float32(-np.inf), 0
    for action in range(num_actions):
        score = scores[node, 1, action] * root + scores[node, 0, action]
        if score > best:
            best, chosen = score, action
    edge: int = node * num_actions + chosen
    return edge


@_compiled
def best_edges(nodes: _Ints, scores: _Floats, root_of_visits: _Floats) -> _Ints:
    edges = np.empty(len(nodes), np.int64)
    for number in range(len(nodes)):
        edges[number] = _best_edge(nodes[number], scores, root_of_visits)
    return edges


@_compiled
def descend(
    num_trees: int, root_actions: _Ints, scores: _Floats, root_of_visits: _Floats, child: _Ints
) -> tuple[_Ints, _Ints]:
    """Of each tree the last edge of its descent, and the node below it: -1 if there is none yet.

    `root_actions` is empty where PUCT chooses at the roots, too.
    """
    last_edge, leaf = np.empty(num_trees, np.int64), np.empty(num_trees, np.int64)
    for tree in range(num_trees):
        if len(root_actions):
            edge = tree * scores.shape[2] + root_actions[tree]
        else:
            edge = _best_edge(tree, scores, root_of_visits)
        while child[edge] >= 0:
            edge = _best_edge(child[edge], scores, root_of_visits)
        last_edge[tree] = edge
        leaf[tree] = -1 if child[edge] == UNSEEN else CLOSED - child[edge]
    return last_edge, leaf


@_compiled
def open_nodes(
    nodes: _Ints,
    new_scores: _Floats,
    num_roots: int,
    scores: _Floats,
    prior: _Floats,
    edge_visits: _Floats,
    child: _Ints,
    visits: _Floats,
    root_of_visits: _Floats,
    waits: _Bools,
    parent_edge: _Ints,
) -> None:
    num_actions = scores.shape[2]
    for number in range(len(nodes)):
        node = nodes[number]
        waits[node] = False
        visits[node] = root_of_visits[node] = _ONE
        for action in range(num_actions):
            edge = node * num_actions + action
            scores[node, 0, action] = new_scores[number, 0, action]
            scores[node, 1, action] = prior[edge] = new_scores[number, 1, action]
            edge_visits[edge] = 0.0
            child[edge] = UNSEEN
        if node >= num_roots:
            child[parent_edge[node]] = node


@_compiled
def count(
    leaf: _Ints,
    lost: bool,
    num_roots: int,
    scores: _Floats,
    prior: _Floats,
    edge_visits: _Floats,
    visits: _Floats,
    root_of_visits: _Floats,
    parent_edge: _Ints,
    reward: _Floats,
    value: _Floats,
    sign: _Floats,
) -> None:
    """One visit more on the way from each leaf up to its root, of what the leaf is worth, or `lost`."""
    num_actions = scores.shape[2]
    for tree in range(len(leaf)):
        node = leaf[tree]
        whole = reward[node] + value[node]
        while node >= num_roots:
            edge = parent_edge[node]
            node, action = edge // num_actions, edge % num_actions
            outcome = -_ONE if lost else (whole - reward[node]) * sign[node]
            visits[node] += _ONE
            root_of_visits[node] = np.sqrt(visits[node])
            edge_visits[edge] += _ONE
            scores[node, 0, action] += (outcome - scores[node, 0, action]) / edge_visits[edge]
            scores[node, 1, action] = prior[edge] / (edge_visits[edge] + _ONE)


@_compiled
def settle(
    leaf: _Ints,
    num_roots: int,
    scores: _Floats,
    edge_visits: _Floats,
    parent_edge: _Ints,
    reward: _Floats,
    value: _Floats,
    sign: _Floats,
) -> None:
    """What each leaf is worth, in the place of a visit that was counted as lost."""
    num_actions = scores.shape[2]
    for tree in range(len(leaf)):
        node = leaf[tree]
        whole = reward[node] + value[node]
        while node >= num_roots:
            edge = parent_edge[node]
            node, action = edge // num_actions, edge % num_actions
            outcome = (whole - reward[node]) * sign[node]
            scores[node, 0, action] += (outcome + _ONE) / edge_visits[edge]


# --- networks


@_compiled
def first_layer(obs: _Floats, weight: _Floats, bias: _Floats, rectify: bool, out: _Floats) -> None:
    """`out [towers, N, outputs] = obs @ weight [towers, inputs, outputs] + bias [towers, 1, outputs]`.

    What boards show is mostly zeros, which cost nothing here. Without zeros it takes as long as a product of matrices.
    """
    for tower in range(len(weight)):
        for row in range(len(obs)):
            for unit in range(weight.shape[2]):
                out[tower, row, unit] = bias[tower, 0, unit]
            for number in range(obs.shape[1]):
                seen = obs[row, number]
                if seen != 0.0:
                    for unit in range(weight.shape[2]):
                        out[tower, row, unit] += seen * weight[tower, number, unit]
            if rectify:
                for unit in range(weight.shape[2]):
                    out[tower, row, unit] = max(out[tower, row, unit], np.float32(0.0))


@_compiled
def add_bias(out: _Floats, bias: _Floats, rectify: bool) -> None:
    for tower in range(len(out)):
        for row in range(out.shape[1]):
            for unit in range(out.shape[2]):
                value = out[tower, row, unit] + bias[tower, 0, unit]
                out[tower, row, unit] = max(value, np.float32(0.0)) if rectify else value


@_compiled
def scores_of(logits: _Floats, legal: _Bools, value: _Floats, exploration: np.float32) -> _Floats:
    """`[N, 2, actions]` what `open_nodes` is given: without visits each edge is worth what its node is."""
    scores = np.empty((logits.shape[0], 2, logits.shape[1]), np.float32)
    for row in range(logits.shape[0]):
        most, total = np.float32(-np.inf), np.float32(0.0)
        for action in range(logits.shape[1]):
            if legal[row, action]:
                most = max(most, logits[row, action])
        for action in range(logits.shape[1]):
            prior = np.exp(logits[row, action] - most) if legal[row, action] else np.float32(0.0)
            scores[row, 1, action] = prior
            total += prior
        for action in range(logits.shape[1]):
            scores[row, 0, action] = value[row] if legal[row, action] else np.float32(-np.inf)
            scores[row, 1, action] *= exploration / total
    return scores


# --- positions


@_compiled
def find(state: _Ints, factors: _Ints, bits: int, remembered: _Ints) -> tuple[_Ints, _Bools]:
    """The place of each `state [N, numbers]` among `remembered [2 ** bits, numbers]`, and whether it has it."""
    place, is_here = np.empty(len(state), np.int64), np.empty(len(state), np.bool_)
    for row in range(len(state)):
        key = np.int64(0)
        for number in range(len(factors)):
            key += state[row, number] * factors[number]
        key ^= key >> 29
        key *= factors[0]
        place[row] = (key >> (64 - bits)) & ((1 << bits) - 1)
        is_here[row] = _are_alike(state, row, remembered, place[row])
    return place, is_here


@_compiled
def first_of_each(state: _Ints, place: _Ints, first: _Ints) -> tuple[_Ints, _Ints]:
    """Which rows are the first of their state, and of each row, which of these is like it. `first` is scratch memory.

    Two states that come to one place in turns are both among them more than once.
    """
    chosen, like, num = np.empty(len(state), np.int64), np.empty(len(state), np.int64), 0
    for row in range(len(state)):
        first[place[row]] = -1
    for row in range(len(state)):
        before = first[place[row]]
        if before < 0 or not _are_alike(state, row, state, chosen[before]):
            chosen[num] = row
            before = first[place[row]] = num
            num += 1
        like[row] = before
    return chosen[:num], like


@_compiled
def _are_alike(one: _Ints, row: int, other: _Ints, other_row: int) -> bool:
    for number in range(one.shape[1]):  # noqa: SIM110 (Numba compiles no generators in `all`)
        if one[row, number] != other[other_row, number]:
            return False
    return True
