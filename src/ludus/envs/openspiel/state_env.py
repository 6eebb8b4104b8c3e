"""One game of OpenSpiel, state by state, as a `SingleEnv`: for those that are too large for tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec, TimeStep
from ludus.envs.openspiel import library
from ludus.errors import EnvError

__all__ = ["StateEnv"]


class StateEnv:
    """Only the player to move is active; the mask of all is what that player may do."""

    def __init__(self, spec: EnvSpec, game: Any) -> None:
        self.spec = spec
        self._game = game
        self._state: Any = None
        self._returns = np.zeros(len(spec.agents))
        self._rng = np.random.default_rng(0)

    def reset(self, seed: int, rows: TimeStep) -> None:
        self._rng = np.random.default_rng(seed)
        self._state = self._game.new_initial_state()
        self._returns = np.zeros(len(self.spec.agents))
        self._draw_chance()
        if self._show(rows):
            raise EnvError(f"{self.spec.name} was over before anybody moved")

    def step(self, action: NDArray[Any], rows: TimeStep) -> bool:
        player = self._state.current_player()
        chosen = int(action[player])
        if chosen not in self._state.legal_actions():
            raise EnvError(
                f"{self.spec.name}: player_{player} cannot do {chosen}; legal are {self._state.legal_actions()}. "
                "Choose among those that the mask allows"
            )
        self._state.apply_action(chosen)
        self._draw_chance()
        return self._show(rows)

    def close(self) -> None:
        self._state = None

    def _draw_chance(self) -> None:
        while self._state.is_chance_node():
            outcomes, weights = zip(*self._state.chance_outcomes(), strict=True)
            place = np.searchsorted(np.cumsum(weights), self._rng.random(), side="right")
            self._state.apply_action(outcomes[min(int(place), len(outcomes) - 1)])

    def _show(self, rows: TimeStep) -> bool:
        """Write what is so now. True if the game is over."""
        state = self._state
        for player in range(len(self.spec.agents)):
            rows.obs[player] = np.asarray(library.observe(self._game, state, player)).reshape(rows.obs.shape[1:])
        returns = np.asarray(state.returns())
        rows.reward[:] = returns - self._returns
        self._returns = returns
        rows.active[:] = False
        assert rows.mask is not None
        if state.is_terminal():
            rows.terminated[:] = True
            rows.mask[:] = True
            return True
        rows.active[state.current_player()] = True
        rows.mask[:] = False
        rows.mask[:, state.legal_actions()] = True
        return False
