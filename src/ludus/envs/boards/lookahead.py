"""Looking some moves ahead by the rules of a game of two players, on many boards at once.

    search = Lookahead(ConnectFour(), depth=4)
    search.values(state)                               # [N, actions] what each move leads to, for the player to move

All lines of play are followed to the same depth, as minimax does: the values, and so the best moves, are those of an
alpha-beta search without its pruning. Whole levels of the trees of all boards are one array, and a position that is
reached in several ways is looked at once, which in NumPy is faster than pruning one tree after the other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core import HasHeuristic, Rules
from ludus.errors import ConfigError

__all__ = [
    "DISCOUNT",
    "Lookahead",
    "Moves",
    "best_replies",
    "expand",
    "expect_two_players",
    "flat_states",
    "state_keys",
    "turn_sign",
    "unique_states",
]

DISCOUNT = 0.99
"""What is a move later counts so much less: of two wins the sooner one is better, of two losses the later one."""

_BLOCK = 512
"""States that are expanded at once: of more, what follows does not fit into the cache, which is half as fast. The
memory that a search takes grows with its depth times this, not with the number of positions."""


class Moves(NamedTuple):
    """Every legal move of some boards, board by board."""

    board: NDArray[np.int64]
    action: NDArray[np.int64]
    after: NDArray[np.int64]
    reward: NDArray[np.float32]  # of player 0; that of player 1 is the opposite
    over: NDArray[np.bool_]
    starts: NDArray[np.int64]  # where the moves of each board start


class Lookahead:
    """Values are the rewards of the game, discounted by `DISCOUNT`; where the game is not over after `depth` moves, the
    rules' heuristic, or 0 if they have none (`core.HasHeuristic`).
    """

    def __init__(self, rules: Rules, *, depth: int) -> None:
        expect_two_players(rules)
        if depth < 1:
            raise ConfigError(f"depth={depth}: looking ahead takes at least 1 move")
        self.rules = rules
        self.depth = depth
        self._heuristic = rules.heuristic if isinstance(rules, HasHeuristic) else None

    def values(self, state: NDArray[np.int64]) -> NDArray[np.float32]:
        """`[N, actions]` for the player to move; -inf where a move is illegal. No game is over."""
        moves = expand(self.rules, state)
        found = np.full((len(state), self.rules.num_actions), -np.inf, np.float32)
        values = self._values_of(moves, self.depth)
        found[moves.board, moves.action] = values * turn_sign(self.rules, state).take(moves.board)
        return found

    def _values_of(self, moves: Moves, depth: int) -> NDArray[np.float32]:
        """For player 0."""
        values = moves.reward.copy()
        live = np.flatnonzero(~moves.over)
        if len(live):
            values[live] += np.float32(DISCOUNT) * self._guess(moves.after[live], depth - 1)
        return values

    def _guess(self, state: NDArray[np.int64], depth: int) -> NDArray[np.float32]:
        """For player 0, of states so many moves above the last that are looked at."""
        if depth == 0:
            return self._at_the_end(state)
        first, back = unique_states(state)
        state = state.take(first, axis=0)
        values = np.concatenate(
            [self._best(state[start : start + _BLOCK], depth) for start in range(0, len(state), _BLOCK)]
        )
        return values[back]

    def _best(self, state: NDArray[np.int64], depth: int) -> NDArray[np.float32]:
        moves = expand(self.rules, state)
        return best_replies(moves, self._values_of(moves, depth), turn_sign(self.rules, state))

    def _at_the_end(self, state: NDArray[np.int64]) -> NDArray[np.float32]:
        if self._heuristic is None:
            return np.zeros(len(state), np.float32)
        return self._heuristic(state) * turn_sign(self.rules, state)


def expect_two_players(rules: Rules) -> None:
    if rules.num_players != 2:
        raise ConfigError(
            f"{rules.name} has {rules.num_players} players. Looking ahead this way is for games of 2, where what one "
            "wins the other loses"
        )


def expand(rules: Rules, state: NDArray[np.int64]) -> Moves:
    """All that can be played on these boards, none of whose games is over."""
    legal = rules.legal(state)
    flat = np.flatnonzero(legal)
    board = flat // rules.num_actions
    action = flat - board * rules.num_actions
    after, reward, over = rules.step(state.take(board, axis=0), action)
    counts = np.count_nonzero(legal, axis=1)
    starts = counts.cumsum() - counts
    return Moves(board, action, after, reward[:, 0], over, starts)


def best_replies(
    moves: Moves, values: NDArray[np.floating[Any]], sign: NDArray[np.float32]
) -> NDArray[np.floating[Any]]:
    """Of the values of moves, for player 0, those of the boards: whose turn it is takes the best for itself."""
    found: NDArray[np.floating[Any]] = np.maximum.reduceat(values * sign.take(moves.board), moves.starts) * sign
    return found


def turn_sign(rules: Rules, state: NDArray[np.int64]) -> NDArray[np.float32]:
    """1 where player 0 is to move, and else -1."""
    return (1 - 2 * rules.to_move(state)).astype(np.float32)


def unique_states(state: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each row that there is the first place, in the order of their keys; and which of these each row is like."""
    flat = flat_states(state)
    order = state_keys(state).argsort(kind="stable")
    ordered = flat.take(order, axis=0)
    is_new = np.ones(len(flat), np.bool_)
    np.any(ordered[1:] != ordered[:-1], axis=1, out=is_new[1:])  # rows that are alike have one key: they are neighbours
    back = np.empty(len(flat), np.int64)
    back[order] = is_new.cumsum() - 1
    return order[is_new], back


def state_keys(state: NDArray[np.int64]) -> NDArray[np.int64]:
    """`[N]` a number for each state, by chance another one for another state."""
    flat = flat_states(state)
    keys: NDArray[np.int64] = flat @ np.random.default_rng(0).integers(-(1 << 63), (1 << 63) - 1, flat.shape[1])
    return keys


def flat_states(state: NDArray[np.int64]) -> NDArray[np.int64]:
    """`[N, numbers]`, of no states, too."""
    return state.reshape(len(state), math.prod(state.shape[1:]))
