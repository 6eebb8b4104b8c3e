"""Random first moves of each episode, so that players who always move alike meet in different games."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.core import Rules
from ludus.envs.seeds import derived_arrays

__all__ = ["Openings", "open_boards"]

_BLOCK = 1024  # drawn at once, which costs little more than drawing one


class Openings:
    """Boards for one episode after the other, of a whole group of envs. Number `n` follows from `(seed, n)` alone."""

    def __init__(self, rules: Rules, max_random_moves: int) -> None:
        self._rules = rules
        self._max_random_moves = max_random_moves
        self._block = rules.start(0)
        self._block_start = 0
        self.seed = 0
        self.num_taken = 0

    def restart(self, seed: int, num_taken: int = 0) -> None:
        """Go on with this number."""
        self.seed, self.num_taken = seed, num_taken
        self._block = self._block[:0]

    def take(self, num: int) -> NDArray[np.int64]:
        """The next `num` boards; the caller may write into them."""
        if not self._max_random_moves:
            return self._rules.start(num)
        first = self.num_taken - self._block_start
        if first < 0 or first + num > len(self._block):
            self._block_start, first = self.num_taken, 0
            numbers = np.arange(self.num_taken, self.num_taken + max(num, _BLOCK))
            self._block = open_boards(self._rules, self.seed, numbers, self._max_random_moves)
        self.num_taken += num
        return self._block[first : first + num].copy()


def open_boards(rules: Rules, seed: int, numbers: NDArray[np.int64], max_random_moves: int) -> NDArray[np.int64]:
    """Boards after 0 to `max_random_moves` moves, each number as likely as the others.

    The moves are legal and do not end the game; where all that are left would, the opening is shorter.
    """
    state = rules.start(len(numbers))
    num_moves = derived_arrays(seed, numbers, 0) % (max_random_moves + 1)
    open_moves = rules.legal(state)
    turn = 0
    while True:
        boards = np.flatnonzero((num_moves > 0) & open_moves.any(axis=1))
        if not len(boards):
            return state
        turn += 1
        action = _nth(open_moves[boards], derived_arrays(seed, numbers[boards], turn))
        after, _, over = rules.step(state[boards], action)
        open_moves[boards[over], action[over]] = False  # another one is drawn
        moved = boards[~over]
        state[moved] = after[~over]
        open_moves[moved] = rules.legal(state[moved])
        num_moves[moved] -= 1


def _nth(allowed: NDArray[np.bool_], drawn: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each row the place of its `drawn`-th true entry, counted round and round."""
    nth = drawn % allowed.sum(axis=1)
    place: NDArray[np.int64] = np.argmax(allowed.cumsum(axis=1) > nth[:, None], axis=1)
    return place
