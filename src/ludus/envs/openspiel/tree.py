"""A small game as tables: all its histories, what follows from each action, what is seen and what it is worth.

    tree = grow(load("openspiel:kuhn_poker", {}))
    node = tree.draw(np.full(64, tree.start), rng.random(64))          # 64 games begin
    node = tree.draw(tree.lottery[node, action], rng.random(64))       # one action in each

Chance nodes are folded into lotteries: an action leads to a lottery, and a lottery to a node at which somebody acts or
the game is over. One without chance has one outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.envs.openspiel import library
from ludus.errors import EnvError

__all__ = ["MAX_NODES", "GameTree", "grow"]

MAX_NODES = 30_000
OVER = -1

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class GameTree:
    """N nodes, each after the one it follows from; A actions; P players; L lotteries with K outcomes together.

    Players have the same information set (`info`) where they know the same. `-1` stands for none.
    """

    player: Ints  # [N] who acts; -1: the game is over
    legal: NDArray[np.bool_]  # [N, A] everything where the game is over
    lottery: Ints  # [N, A] what an action leads to; -1 if it is illegal
    obs: NDArray[np.float32]  # [N, P, ...]
    returns: NDArray[np.float64]  # [N, P] all that each has got on the way here
    info: Ints  # [N] the information set of who acts
    info_node: Ints  # [I] a node of each information set
    start: int  # the lottery that begins a game
    first: Ints  # [L + 1] a lottery's outcomes are first[l] … first[l + 1] - 1
    outcome: Ints  # [K] nodes
    probability: NDArray[np.float64]  # [K]
    cumulative: NDArray[np.float64]  # [K] the lottery's number, and the probability up to this outcome

    @property
    def num_players(self) -> int:
        return int(self.returns.shape[1])

    @property
    def num_actions(self) -> int:
        return int(self.legal.shape[1])

    def draw(self, lottery: Ints, uniform: NDArray[np.float64]) -> Ints:
        """A node of each lottery, by numbers from [0, 1)."""
        found: Ints = self.outcome[np.searchsorted(self.cumulative, lottery + uniform, side="right")]
        return found


def grow(game: Any, *, max_nodes: int = MAX_NODES) -> GameTree | None:
    """The tables of a `pyspiel.Game`; `None` if it has more than `max_nodes` histories."""
    if not _has_at_most(game, max_nodes):
        return None
    growth = _Growth(game)
    return growth.tree(growth.add_lottery(game.new_initial_state()))


def _has_at_most(game: Any, max_nodes: int) -> bool:
    states, num_nodes = [game.new_initial_state()], 0
    while states and num_nodes <= max_nodes:
        state = states.pop()
        num_nodes += 1
        if not state.is_terminal():
            states += [state.child(action) for action in state.legal_actions()]
    return num_nodes <= max_nodes


class _Growth:
    """Depth first. Only the path to one state is in memory as states."""

    def __init__(self, game: Any) -> None:
        self._game = game
        self._num_actions = game.num_distinct_actions()
        self._num_players = game.num_players()
        self._player: list[int] = []
        self._lotteries_of: list[dict[int, int]] = []
        self._obs: list[list[list[float]]] = []
        self._returns: list[list[float]] = []
        self._info: list[int] = []
        self._info_number: dict[tuple[int, Any], int] = {}
        self._info_node: list[int] = []
        self._outcomes: list[list[tuple[int, float]]] = []

    def add_lottery(self, state: Any) -> int:
        """What a state leads to by chance alone; its nodes, and all below them."""
        number = len(self._outcomes)
        self._outcomes.append([])
        self._outcomes[number] = [(self._add_node(reached), weight) for reached, weight in self._drawn(state, 1.0)]
        return number

    def _drawn(self, state: Any, weight: float) -> list[tuple[Any, float]]:
        if not state.is_chance_node():
            return [(state, weight)]
        found = []
        for action, probability in state.chance_outcomes():
            if probability > 0.0:
                found += self._drawn(state.child(action), weight * probability)
        return found

    def _add_node(self, state: Any) -> int:
        node = len(self._player)
        is_over = state.is_terminal()
        player = OVER if is_over else state.current_player()
        self._player.append(player)
        self._returns.append(state.returns())
        self._obs.append([library.observe(self._game, state, each) for each in range(self._num_players)])
        self._info.append(OVER if is_over else self._info_of(state, player, node))
        self._lotteries_of.append({})
        if not is_over:
            for action in state.legal_actions():
                self._lotteries_of[node][action] = self.add_lottery(state.child(action))
        return node

    def _info_of(self, state: Any, player: int, node: int) -> int:
        seen = self._obs[node][player]
        key = (player, np.asarray(seen, np.float32).tobytes())
        number = self._info_number.setdefault(key, len(self._info_number))
        if number == len(self._info_node):
            self._info_node.append(node)
        return number

    def tree(self, start: int) -> GameTree:
        num_nodes = len(self._player)
        lottery = np.full((num_nodes, self._num_actions), -1, np.int64)
        for node, by_action in enumerate(self._lotteries_of):
            for action, number in by_action.items():
                lottery[node, action] = number
        player = np.array(self._player)
        sizes = [len(each) for each in self._outcomes]
        first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        probability = np.array([weight for each in self._outcomes for _, weight in each])
        shape = (num_nodes, self._num_players, *library.tensor_shape(self._game))
        legal = lottery >= 0
        self._expect_same_actions(legal)
        return GameTree(
            player=player,
            legal=legal | (player == OVER)[:, None],
            lottery=lottery,
            obs=np.array(self._obs, np.float32).reshape(shape),
            returns=np.array(self._returns),
            info=np.array(self._info),
            info_node=np.array(self._info_node, np.int64),
            start=start,
            first=first,
            outcome=np.array([node for each in self._outcomes for node, _ in each]),
            probability=probability,
            cumulative=np.concatenate([_cumulative(number, each) for number, each in enumerate(self._outcomes)]),
        )

    def _expect_same_actions(self, legal: NDArray[np.bool_]) -> None:
        acting = np.flatnonzero(np.array(self._info) != OVER)
        same = legal[np.array(self._info_node)[np.array(self._info)[acting]]] == legal[acting]
        if not same.all():
            raise EnvError(
                f"{self._game}: what a player sees does not tell which actions are legal, so it cannot be played "
                "from observations. Choose another game"
            )


def _cumulative(number: int, outcomes: list[tuple[int, float]]) -> NDArray[np.float64]:
    found = number + np.cumsum([weight for _, weight in outcomes])
    found[-1] = number + 1.0
    return found
