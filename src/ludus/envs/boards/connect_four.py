"""Connect Four by bits: 6 rows of 7 columns, discs fall, four in a line win.

A state is `[discs of the player to move, discs of the other, moves so far]`. A set of discs is an integer with a byte
for each row, the bottom row first, and a bit for each column, the left one first. The eighth bit of a row is always 0,
so that no line runs over the edge: four in a line are found by four shifts, for all boards and directions at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.data.spec import ArraySpec

__all__ = ["ConnectFour"]

_HEIGHT, _WIDTH = 6, 7
_CELLS = _HEIGHT * _WIDTH
_COLUMN = sum(1 << (8 * row) for row in range(_HEIGHT)) << np.arange(_WIDTH)
"""The cells of each column."""
_TOP_ROW, _ROW_BITS = 8 * (_HEIGHT - 1), (1 << _WIDTH) - 1
_BOARD = sum(_ROW_BITS << (8 * row) for row in range(_HEIGHT))
_LINES = np.array([[1], [8], [7], [9]])  # how far one cell is from the next: across, up, and both diagonals
_BITS = (np.arange(1 << 15)[:, None] >> np.arange(16)) & 1
_OPEN: NDArray[np.bool_] = _BITS[: 1 << _WIDTH, :_WIDTH] == 0
"""Discs of the top row → the columns that have room."""
_TWO_ROWS = _BITS.reshape(-1, 2, 8)[:, ::-1, :_WIDTH].astype(np.float32).reshape(-1, 2 * _WIDTH)
"""Discs of two rows → 1 for each, the upper row first. Looking up whole rows is three times faster than single bits."""
_REWARDS = np.array([[0, 0], [0, 0], [1, -1], [-1, 1]], np.float32)
"""By `2 * (the mover has won) + mover`."""


_STARTS = np.array(
    [
        [
            sum(
                1 << (8 * row + column)
                for row in range(_HEIGHT)
                for column in range(_WIDTH)
                if 0 <= row + 3 * up < _HEIGHT and 0 <= column + 3 * right < _WIDTH
            )
        ]
        for up, right in ((0, 1), (1, 0), (1, -1), (1, 1))
    ]
)
"""Of each direction, the cells where a line of four starts that does not run over the edge."""
_TWO, _THREE, _CENTRE = 2, 5, 3
_SCALE = np.float32(1 / 512)  # the sum of all weights is smaller


class ConnectFour:
    """Two players; an action is a column, 0 on the left. The observation is flat: a plane of one's own discs, then one
    of the opponent's, each with the top row first. (Flat, because networks of vectors are the fastest here, and a
    board is too small for the convolutions that read images.)

    `threats`: three planes more, which save a small network most of what it has to learn first: cells where one more
    disc makes four for oneself, those for the opponent, and those where the next disc of each column falls.
    """

    name = "connect_four"
    num_players = 2
    obs: ArraySpec = ArraySpec((2 * _CELLS,), np.float32, 0, 1)
    num_actions = _WIDTH
    state = ArraySpec((3,), np.int64, 0)
    max_moves = _CELLS

    def __init__(self, *, threats: bool = False) -> None:
        self._threats = threats
        self._num_planes = 5 if threats else 2
        if threats:
            self.obs = ArraySpec((self._num_planes * _CELLS,), np.float32, 0, 1)

    def start(self, num: int) -> NDArray[np.int64]:
        return np.zeros((num, 3), np.int64)

    def step(
        self, state: NDArray[np.int64], action: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
        own, other, moves = state[:, 0], state[:, 1], state[:, 2]
        room = _COLUMN.take(action)
        room &= ~(own | other)
        own = own | (room & -room)  # the lowest bit that is set
        won = _has_four(own)
        after = np.empty_like(state)
        after[:, 0] = other
        after[:, 1] = own
        np.add(moves, 1, out=after[:, 2])
        return after, _REWARDS.take(2 * won + (moves & 1), axis=0), won | (moves == _CELLS - 1)

    def legal(self, state: NDArray[np.int64]) -> NDArray[np.bool_]:
        return _OPEN.take(((state[:, 0] | state[:, 1]) >> _TOP_ROW) & _ROW_BITS, axis=0)

    def to_move(self, state: NDArray[np.int64]) -> NDArray[np.int64]:
        return state[:, 2] & 1

    def observe(self, state: NDArray[np.int64], player: NDArray[np.int64]) -> NDArray[np.float32]:
        is_mover = (state[:, 2] & 1) == player
        discs = np.where(is_mover[:, None], state[:, :2], state[:, 1::-1])
        planes = discs
        if self._threats:
            taken = discs[:, :1] | discs[:, 1:]
            falls = ((taken << 8) | _ROW_BITS) & _BOARD & ~taken
            planes = np.concatenate([discs, _winning_cells(discs) & ~taken, falls], axis=1)
        # Two rows at a time, of a little-endian integer.
        rows = planes.view(np.uint16).reshape(len(state), self._num_planes, 4)[:, :, 2::-1]
        return _TWO_ROWS.take(rows, axis=0).reshape(len(state), self._num_planes * _CELLS)

    def heuristic(self, state: NDArray[np.int64]) -> NDArray[np.float32]:
        """Lines of four cells with two or three discs of one player and none of the other, and discs in the centre."""
        discs = np.ascontiguousarray(state[:, :2].T)  # of the two players
        twos, threes = _open_lines(discs)
        points = _TWO * _count(twos).sum(1) + _THREE * _count(threes).sum(1)
        points += _CENTRE * _count(discs & _COLUMN[_WIDTH // 2])
        guess: NDArray[np.float32] = (points[0] - points[1]) * _SCALE
        return guess

    def cells(self, state: NDArray[np.int64]) -> NDArray[np.int8]:
        first = self.observe(state, np.zeros(len(state), np.int64))
        first = first.reshape(len(state), self._num_planes, _HEIGHT, _WIDTH)
        return (first[:, 0] + 2 * first[:, 1]).astype(np.int8)

    @property
    def cell_actions(self) -> NDArray[np.int64]:
        return np.tile(np.arange(_WIDTH), (_HEIGHT, 1))

    @property
    def symmetries(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Left and right change places."""
        places = np.arange(self._num_planes * _CELLS).reshape(-1, _HEIGHT, _WIDTH)[:, :, ::-1].reshape(-1)
        return [(places, np.arange(_WIDTH)[::-1])]


def _winning_cells(discs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cells of the board, empty or not, that make four in a line with three of these discs."""
    found = (discs << 8) & (discs << 16) & (discs << 24)  # upwards
    for step in (1, 7, 9):
        below = (discs << step) & (discs << 2 * step)
        above = (discs >> step) & (discs >> 2 * step)
        found |= below & ((discs << 3 * step) | (discs >> step))
        found |= above & ((discs >> 3 * step) | (discs << step))
    return found & _BOARD


def _has_four(discs: NDArray[np.int64]) -> NDArray[np.bool_]:
    pairs = discs >> _LINES
    pairs &= discs
    fours = pairs >> (2 * _LINES)
    fours &= pairs
    found: NDArray[np.bool_] = fours.any(axis=0)
    return found


def _open_lines(discs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`[player, direction, N]` the cells where lines start that have two, and that have three, discs of one player, and
    none of the other.
    """
    discs = discs[:, None]
    shifted = discs >> _LINES
    one, both = discs ^ shifted, discs & shifted  # of the first two cells of each line
    taken = one | both
    # The sum of the discs of its four cells, bit by bit, for all lines at once.
    third, fourth = one >> (2 * _LINES), both >> (2 * _LINES)
    twos = one & third
    twos ^= both
    twos ^= fourth
    taken |= third
    taken |= fourth
    twos &= ~taken[::-1]
    twos &= _STARTS
    one ^= third
    threes = twos & one
    twos ^= threes
    return twos, threes


if hasattr(np, "bitwise_count"):

    def _count(bits: NDArray[np.int64]) -> NDArray[np.float32]:
        """How many bits are set, of sets of cells."""
        return np.bitwise_count(bits).astype(np.float32)

else:  # NumPy 1
    _NUM_BITS = _BITS.sum(1).astype(np.float32)
    _NUM_BITS = np.concatenate([_NUM_BITS, _NUM_BITS + 1])  # by 16 bits

    def _count(bits: NDArray[np.int64]) -> NDArray[np.float32]:
        """How many bits are set, of sets of cells."""
        words = np.ascontiguousarray(bits).view(np.uint16).reshape(*bits.shape, 4)
        found: NDArray[np.float32] = _NUM_BITS.take(words).sum(-1)
        return found
