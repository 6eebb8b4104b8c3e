"""Players that are tables: from what is seen to the row of its information set.

    seats = TabularSeats(pool, game, "openspiel:kuhn_poker", {})
    seats.open(player).act(obs, None, first, rng, mask)

The weights of such a player are one array, `table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.actions import ActionSpec, Discrete
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError, DataError
from ludus.league.bots import make_bot
from ludus.league.players import Player, PlayerPolicy
from ludus.league.psro.tabular_game import TabularGame
from ludus.league.seats import ReadPool, version_of

__all__ = ["TABLE", "TabularPolicy", "TabularSeats"]

TABLE = "table"


class TabularPolicy:
    """A `PlayerPolicy`."""

    state_spec = None

    def __init__(self, game: TabularGame, table: NDArray[np.float64]) -> None:
        tree = game.tree
        self.table = table
        obs = tree.obs[tree.info_node, game.info_player]
        self._row = {each.tobytes(): number for number, each in enumerate(obs)}

    def act(
        self,
        obs: Nest,
        state: Nest,
        first: NDArray[np.bool_],
        rng: np.random.Generator,
        mask: NDArray[np.bool_] | None = None,
        *,
        greedy: bool = False,
    ) -> tuple[NDArray[Any], NDArray[np.float32], Nest]:
        try:
            rows = [self._row[each.tobytes()] for each in obs]
        except KeyError:
            raise DataError("this is no information set of the game that the table is for") from None
        probabilities = self.table[rows]
        if greedy:
            return probabilities.argmax(1), np.zeros(len(rows), np.float32), None
        drawn = rng.random((len(rows), 1)) * probabilities.sum(1, keepdims=True)
        action = (probabilities.cumsum(1) > drawn).argmax(1)
        return action, np.log(probabilities[np.arange(len(rows)), action]).astype(np.float32), None


class TabularSeats:
    """`OpensPlayers` whose weights are tables; bots play as they do elsewhere."""

    def __init__(self, pool: ReadPool, game: TabularGame, name: str, args: Mapping[str, Any]) -> None:
        self._pool = pool
        self.game = game
        self._name, self._args = name, args

    @property
    def obs(self) -> Nest:
        return ArraySpec(self.game.tree.obs.shape[2:], np.float32)

    @property
    def action(self) -> ActionSpec:
        return Discrete(self.game.tree.num_actions)

    def open(self, player: Player) -> PlayerPolicy:
        """Raises `ConfigError` for one that cannot play by itself."""
        if player.role == "bot" and player.model is not None:
            return make_bot(player.model, self._name, self._args)
        return TabularPolicy(self.game, self.table(player))

    def version_of(self, player: Player) -> int:
        """The number that it plays now; -1 for a bot, and for a learner that has learnt nothing yet."""
        return version_of(self._pool, player)

    def table(self, player: Player) -> NDArray[np.float64]:
        """All that it does, as probabilities; a learner that has learnt nothing yet does anything."""
        if player.model == "random" and player.role == "bot":
            return self.game.uniform()
        if player.role in ("bot", "human") or player.model is None:
            raise ConfigError(f"{player.name!r} is a {player.role}, which has no table: only `random` is known exactly")
        if player.version is None and self._pool.latest(player.model) is None:
            return self.game.uniform()
        weights = self._pool.get(player.model, -1 if player.version is None else player.version)[1]
        return np.asarray(weights[TABLE], np.float64)
