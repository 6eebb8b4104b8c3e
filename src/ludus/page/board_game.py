"""One game of a person against a player, by the rules of a board game.

game = BoardGame(rules, policy, human=0, is_greedy=True)
game.play(3)                   # the person's move
game.reply()                   # the player's moves, until it is the person's turn
game.rewards                   # by side, once it is over
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import Rules
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.errors import ConfigError
from ludus.league.players import PlayerPolicy

__all__ = ["BoardGame"]


class BoardGame:
    """The person plays the side `human`, the policy all others. Not for several threads at once."""

    def __init__(self, rules: Rules, policy: PlayerPolicy, *, human: int, is_greedy: bool, seed: int = 0) -> None:
        if not 0 <= human < rules.num_players:
            raise ConfigError(f"side {human}: this game has the sides 0 to {rules.num_players - 1}")
        self.rules = rules
        self.human = human
        self.rewards: list[float] | None = None
        self.num_moves = 0
        self.last_cells: NDArray[np.bool_] = np.zeros(rules.cells(rules.start(1))[0].shape, np.bool_)
        self._policy = policy
        self._is_greedy = is_greedy
        self._rng = np.random.default_rng(seed)
        self._state = rules.start(1)
        self._seats: dict[int, tuple[Nest, bool]] = {}  # recurrent state and whether it has moved, by side

    @property
    def is_over(self) -> bool:
        return self.rewards is not None

    @property
    def to_move(self) -> int:
        return int(self.rules.to_move(self._state)[0])

    @property
    def cells(self) -> NDArray[np.int8]:
        """`[height, width]` as `Rules.cells` has them."""
        cells: NDArray[np.int8] = self.rules.cells(self._state)[0]
        return cells

    @property
    def legal(self) -> NDArray[np.bool_]:
        """What the person may do now: nothing, if it is not their turn."""
        if self.is_over or self.to_move != self.human:
            return np.zeros(self.rules.num_actions, np.bool_)
        legal: NDArray[np.bool_] = self.rules.legal(self._state)[0]
        return legal

    def play(self, action: int) -> None:
        """The person's move. Raises `ConfigError` for one that is not legal now, which changes nothing."""
        if self.is_over or self.to_move != self.human:
            raise ConfigError("It is not your turn.")
        if not 0 <= action < self.rules.num_actions or not self.rules.legal(self._state)[0, action]:
            raise ConfigError("That move is not legal.")
        self._step(action)

    def reply(self) -> None:
        """The other sides move until it is the person's turn, or the game is over."""
        while not self.is_over and self.to_move != self.human:
            self._step(self._choose(self.to_move))

    def _choose(self, side: int) -> int:
        spec = getattr(self._policy, "state_spec", None)
        state, has_moved = self._seats.get(side, (None, False))
        if not has_moved:
            state = nests.map(lambda leaf: None if leaf is None else leaf.allocate((1,)), spec)
        boards: dict[str, Any] = {"boards": self._state} if getattr(self._policy, "needs_boards", False) else {}
        action, _, state = self._policy.act(
            self.rules.observe(self._state, np.array([side])),
            state,
            np.array([not has_moved]),
            self._rng,
            self.rules.legal(self._state),
            greedy=self._is_greedy,
            **boards,
        )
        self._seats[side] = state, True
        return int(action[0])

    def _step(self, action: int) -> None:
        before = self.cells
        self._state, rewards, is_over = self.rules.step(self._state, np.array([action]))
        self.num_moves += 1
        self.last_cells = self.cells != before
        if is_over[0]:
            self.rewards = [float(reward) for reward in rewards[0]]
