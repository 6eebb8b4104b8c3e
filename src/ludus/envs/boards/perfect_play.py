"""Perfect play of small games: every position that can come up, searched to the end of the game.

    perfect = PerfectPlay(TicTacToe())
    perfect.values(state)                              # [N, actions] what each move leads to, for the player to move

The positions are found once, move by move from the start; then a value is looked up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.core import Rules
from ludus.envs.boards.lookahead import (
    DISCOUNT,
    Moves,
    best_replies,
    expand,
    expect_two_players,
    flat_states,
    state_keys,
    turn_sign,
    unique_states,
)
from ludus.errors import ConfigError, DataError

__all__ = ["PerfectPlay"]

_MAX_POSITIONS = 300_000


class PerfectPlay:
    """Values are as those of `Lookahead`: the game's rewards, discounted by `DISCOUNT`, if both play the best moves.

    Raises `ConfigError` for a game of more than `max_positions` positions that are not over.
    """

    def __init__(self, rules: Rules, *, max_positions: int = _MAX_POSITIONS) -> None:
        expect_two_players(rules)
        self.rules = rules
        levels = _positions(rules, max_positions)
        states = np.concatenate(levels[::-1])
        num_moves = np.repeat(np.arange(len(levels))[::-1], [len(level) for level in levels[::-1]])
        first, _ = unique_states(
            states
        )  # by their keys; of the same position after different numbers of moves the last
        states, num_moves = states[first], num_moves[first]
        self._keys = state_keys(states)
        self._states = flat_states(states)
        self._values = np.empty(len(states))  # for player 0
        for number in reversed(range(len(levels))):
            places = np.flatnonzero(num_moves == number)
            moves = expand(rules, states[places])
            self._values[places] = best_replies(moves, self._values_of(moves), turn_sign(rules, states[places]))

    @property
    def num_positions(self) -> int:
        return len(self._keys)

    def values(self, state: NDArray[np.int64]) -> NDArray[np.float64]:
        """`[N, actions]` for the player to move; -inf where a move is illegal. No game is over."""
        moves = expand(self.rules, state)
        found = np.full((len(state), self.rules.num_actions), -np.inf)
        found[moves.board, moves.action] = self._values_of(moves) * turn_sign(self.rules, state).take(moves.board)
        return found

    def _values_of(self, moves: Moves) -> NDArray[np.float64]:
        values = moves.reward.astype(np.float64)
        live = np.flatnonzero(~moves.over)
        values[live] += DISCOUNT * self._values[self._places(moves.after[live])]
        return values

    def _places(self, state: NDArray[np.int64]) -> NDArray[np.int64]:
        places = np.searchsorted(self._keys, state_keys(state))
        if not np.array_equal(self._states.take(places, axis=0, mode="clip"), flat_states(state)):
            raise DataError(f"there is a position that cannot come up in {self.rules.name}")
        return places


def _positions(rules: Rules, max_positions: int) -> list[NDArray[np.int64]]:
    """All that are not over, by the number of moves so far. One that comes up after different numbers is in each."""
    levels: list[NDArray[np.int64]] = []
    num = 0
    state = rules.start(1)
    while len(state):
        num += len(state)
        if num > max_positions or len(levels) > rules.max_moves:
            raise ConfigError(
                f"{rules.name} is too large to be searched to the end: it has more than {max_positions:,} positions. "
                "Look only some moves ahead: alphabeta:4, say"
            )
        levels.append(state)
        moves = expand(rules, state)
        state = moves.after[~moves.over]
        state = state[unique_states(state)[0]]
    return levels
