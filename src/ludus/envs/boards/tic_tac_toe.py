"""Tic-tac-toe: three in a line on nine cells.

A state is `[cells of the player to move, cells of the other, moves so far]`; of a set of cells bit `i` is cell `i`, row
by row from the top left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.data.spec import ArraySpec

__all__ = ["TicTacToe"]

_CELLS = 9
_BITS = ((np.arange(1 << _CELLS)[:, None] >> np.arange(_CELLS)) & 1).astype(np.float32)
"""A set of cells → 1 for each."""
_OPEN: NDArray[np.bool_] = _BITS == 0
_LINES = np.array([0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100])
_WINS: NDArray[np.bool_] = ((np.arange(1 << _CELLS)[:, None] & _LINES) == _LINES).any(axis=1)
"""Whether a set of cells has three in a line."""
_REWARDS = np.array([[0, 0], [0, 0], [1, -1], [-1, 1]], np.float32)
"""By `2 * (the mover has won) + mover`."""


class TicTacToe:
    """Two players; an action is a cell, row by row from the top left. The observation is flat: a plane of one's own
    marks, then one of the opponent's.
    """

    name = "tic_tac_toe"
    num_players = 2
    obs = ArraySpec((2 * _CELLS,), np.float32, 0, 1)
    num_actions = _CELLS
    state = ArraySpec((3,), np.int64, 0)
    max_moves = _CELLS

    def start(self, num: int) -> NDArray[np.int64]:
        return np.zeros((num, 3), np.int64)

    def step(
        self, state: NDArray[np.int64], action: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
        moves = state[:, 2]
        own = state[:, 0] | (1 << action)
        won = _WINS.take(own)
        after = np.empty_like(state)
        after[:, 0] = state[:, 1]
        after[:, 1] = own
        np.add(moves, 1, out=after[:, 2])
        return after, _REWARDS.take(2 * won + (moves & 1), axis=0), won | (moves == _CELLS - 1)

    def legal(self, state: NDArray[np.int64]) -> NDArray[np.bool_]:
        return _OPEN.take(state[:, 0] | state[:, 1], axis=0)

    def to_move(self, state: NDArray[np.int64]) -> NDArray[np.int64]:
        return state[:, 2] & 1

    def observe(self, state: NDArray[np.int64], player: NDArray[np.int64]) -> NDArray[np.float32]:
        is_mover = (state[:, 2] & 1) == player
        marks = np.where(is_mover[:, None], state[:, :2], state[:, 1::-1])
        return _BITS.take(marks, axis=0).reshape(len(state), 2 * _CELLS)

    def cells(self, state: NDArray[np.int64]) -> NDArray[np.int8]:
        first = self.observe(state, np.zeros(len(state), np.int64)).reshape(len(state), 2, 3, 3)
        return (first[:, 0] + 2 * first[:, 1]).astype(np.int8)

    @property
    def cell_actions(self) -> NDArray[np.int64]:
        return np.arange(_CELLS).reshape(3, 3)

    @property
    def symmetries(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Turned by quarters, and all that in a mirror."""
        cells = np.arange(_CELLS).reshape(3, 3)
        seen = [np.rot90(board, turns).reshape(-1) for board in (cells, cells.T) for turns in range(4)]
        return [(np.concatenate([each, _CELLS + each]), each) for each in seen[1:]]
