"""Gives the nodes of trees what a network says of them, and asks it about no position twice.

A node has a value as soon as it is there, and edges when it is opened. Where a network computes values without logits,
a node is opened when a descent comes to it again, which happens to about half of them: the others need no logits.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from ludus.core import Rules
from ludus.learn.search import loops
from ludus.learn.search.evaluator import Evaluate, EvaluateApart
from ludus.learn.search.positions import Positions
from ludus.learn.search.trees import Trees

__all__ = ["Leaves"]

_Floats = NDArray[np.float32]
_State = NDArray[np.int64]


class Leaves:
    """Of one search at a time; positions are remembered from one to the next."""

    def __init__(self, rules: Rules, trees: Trees, *, exploration: float) -> None:
        self._rules = rules
        self._trees = trees
        self._exploration = np.float32(exploration)
        self._remembered = Positions(rules)
        self._positions: Positions | None = None  # those above, in a search that may use them
        self._evaluate: Evaluate
        self._apart: EvaluateApart | None = None

    def begin(self, evaluate: Evaluate) -> None:
        """A search by this network."""
        self._evaluate = evaluate
        self._apart = cast(EvaluateApart, evaluate) if getattr(evaluate, "is_apart", False) else None
        fingerprint = getattr(evaluate, "fingerprint", None)
        self._positions = self._remembered if fingerprint is not None else None
        if fingerprint is not None:
            self._remembered.of_weights(fingerprint())

    @property
    def values_are_apart(self) -> bool:
        """Whether `set_values` costs less than `open`."""
        return self._apart is not None

    def open(self, nodes: NDArray[np.int64]) -> None:
        """Their values and their edges."""
        if not len(nodes):
            return
        state = self._trees.state.take(nodes, axis=0)
        positions = self._positions
        if positions is None:
            value, scores = self._value_and_scores(nodes, state)
        else:
            place, known = positions.find(state)
            known &= positions.knows(positions.value, place)
            known &= positions.knows(positions.scores, place)
            value, scores = positions.value.read(place), positions.scores.read(place)
            rest = (~known).nonzero()[0]
            if len(rest):
                chosen, like = positions.first_of_each(state.take(rest, axis=0), place.take(rest))
                new = rest.take(chosen)
                new_state, new_place = state.take(new, axis=0), place.take(new)
                new_value, new_scores = self._value_and_scores(nodes.take(new), new_state)
                positions.claim(new_state, new_place)
                positions.write(positions.value, new_place, new_value)
                positions.write(positions.scores, new_place, new_scores)
                value[rest], scores[rest] = new_value.take(like), new_scores.take(like, axis=0)
        self._trees.set_value(nodes, value)
        self._trees.open(nodes, scores)

    def set_values(self, nodes: NDArray[np.int64]) -> None:
        """Their values, and their edges where these are known. `open_valued` is for others that are come to again."""
        if not len(nodes):
            return
        state = self._trees.state.take(nodes, axis=0)
        positions = self._positions
        if positions is None:
            self._trees.set_value(nodes, self._value(nodes, state))
            return
        place, known = positions.find(state)
        known &= positions.knows(positions.value, place)
        value = positions.value.read(place)
        rest = (~known).nonzero()[0]
        if len(rest):
            chosen, like = positions.first_of_each(state.take(rest, axis=0), place.take(rest))
            new = rest.take(chosen)
            new_state, new_place = state.take(new, axis=0), place.take(new)
            new_value = self._value(nodes.take(new), new_state)
            positions.claim(new_state, new_place)
            positions.write(positions.value, new_place, new_value)
            value[rest] = new_value.take(like)
        self._trees.set_value(nodes, value)
        known &= positions.knows(positions.scores, place)
        opened = known.nonzero()[0]
        if len(opened):
            self._trees.open(nodes.take(opened), positions.scores.read(place.take(opened)))

    def open_valued(self, nodes: NDArray[np.int64]) -> None:
        """The edges of nodes that have their values."""
        state = self._trees.state.take(nodes, axis=0)
        positions = self._positions
        if positions is None:
            self._trees.open(nodes, self._scores(nodes, state))
            return
        place, here = positions.find(state)  # another position may have come to its place since
        known = here & positions.knows(positions.scores, place)
        scores = positions.scores.read(place)
        rest = (~known).nonzero()[0]
        if len(rest):
            chosen, like = positions.first_of_each(state.take(rest, axis=0), place.take(rest))
            new = rest.take(chosen)
            new_scores = self._scores(nodes.take(new), state.take(new, axis=0))
            kept = here.take(new).nonzero()[0]
            positions.write(positions.scores, place.take(new.take(kept)), new_scores.take(kept, axis=0))
            scores[rest] = new_scores.take(like, axis=0)
        self._trees.open(nodes, scores)

    def _value_and_scores(self, nodes: NDArray[np.int64], state: _State) -> tuple[_Floats, _Floats]:
        logits, value = self._evaluate(self._observe(nodes, state))
        return value, self._as_scores(state, logits, value)

    def _value(self, nodes: NDArray[np.int64], state: _State) -> _Floats:
        assert self._apart is not None
        return self._apart.value(self._observe(nodes, state))

    def _scores(self, nodes: NDArray[np.int64], state: _State) -> _Floats:
        assert self._apart is not None
        logits = self._apart.logits(self._observe(nodes, state))
        return self._as_scores(state, logits, self._trees.value_for_mover(nodes))

    def _observe(self, nodes: NDArray[np.int64], state: _State) -> _Floats:
        return self._rules.observe(state, self._trees.mover.take(nodes))

    def _as_scores(self, state: _State, logits: _Floats, value: _Floats) -> _Floats:
        return loops.scores_of(logits, self._rules.legal(state), value, self._exploration)
