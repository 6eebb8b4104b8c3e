"""The tree search: forced moves, the same counts as a plain search of one tree, ends of games, several leaves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ludus.core import Rules
from ludus.data.spec import ArraySpec
from ludus.envs.boards.connect_four import ConnectFour
from ludus.envs.boards.perfect_play import PerfectPlay
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.errors import ConfigError
from ludus.learn.search.evaluator import Evaluate
from ludus.learn.search.search import SearchResult, TreeSearch
from ludus.learn.search.settings import SearchSettings

_F = np.float32


def _after(rules: Rules, moves: list[int]) -> NDArray[np.int64]:
    state = rules.start(1)
    for move in moves:
        state, _, over = rules.step(state, np.array([move]))
        assert not over[0]
    return state


def _random_boards(rules: Rules, num: int, *, max_moves: int, seed: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    boards: list[NDArray[np.int64]] = []
    while len(boards) < num:
        state = rules.start(1)
        for _ in range(rng.integers(max_moves + 1)):
            action = rng.choice(np.flatnonzero(rules.legal(state)[0]))
            after, _, over = rules.step(state, np.array([action]))
            if over[0]:
                break
            state = after
        boards.append(state)
    return np.concatenate(boards)


def _hashed(num_actions: int) -> Evaluate:
    """Logits and values that look random and follow from the observation, whatever it is batched with."""
    weight = np.random.default_rng(5).normal(size=(256, num_actions + 1))

    def evaluate(obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        flat = obs.reshape(len(obs), -1)
        mixed = np.stack(
            [np.sin(3.0 * (row @ weight[: flat.shape[1]])) for row in flat]
        )  # row by row: bit by bit alike
        return mixed[:, :-1].astype(_F), mixed[:, -1].astype(_F)

    return evaluate


def evaluate_uniformly(num_actions: int) -> Evaluate:
    """A network that knows nothing: all moves alike, all values 0."""

    def evaluate(obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.zeros((len(obs), num_actions), _F), np.zeros(len(obs), _F)

    return evaluate


def _search(rules: Rules, state: NDArray[np.int64], evaluate: Evaluate | None = None, **settings: Any) -> SearchResult:
    search = TreeSearch(rules, SearchSettings(**settings))
    return search(state, evaluate or evaluate_uniformly(rules.num_actions), np.random.default_rng(3))


# --- the same as a plain search


class _Node:
    """Of one tree, as the paper describes it. `value` and `reward` are for who is to move at the parent."""

    def __init__(self, rules: Rules, state: NDArray[np.int64], evaluate: Evaluate) -> None:
        self.rules, self.state, self.evaluate = rules, state, evaluate
        self.mover = rules.to_move(state)
        logits, value = evaluate(rules.observe(state, self.mover))
        self.value = value[0]
        self.legal = rules.legal(state)[0]
        logits = np.where(self.legal, logits[0], -np.inf)
        prior = np.exp(logits - logits.max())
        self.prior = prior / prior.sum()
        self.visits = [0] * rules.num_actions
        self.quality = [self.value] * rules.num_actions
        self.children: list[Any] = [None] * rules.num_actions

    def simulate(self, exploration: float) -> float:
        """One visit; what it was worth for who moves here."""
        best, chosen = -math.inf, -1
        for action in np.flatnonzero(self.legal):
            bonus = _F(exploration) * self.prior[action] / _F(1 + self.visits[action])
            score = self.quality[action] + bonus * np.sqrt(_F(1 + sum(self.visits)))
            if score > best:
                best, chosen = score, action
        if self.children[chosen] is None:
            after, reward, over = self.rules.step(self.state, np.array([chosen]))
            node = None if over[0] else _Node(self.rules, after, self.evaluate)
            self.children[chosen] = (reward[0, self.mover[0]], node)
            worth = _F(0.0) if node is None else self._own(node, node.value)
        else:
            node = self.children[chosen][1]
            worth = _F(0.0) if node is None else self._own(node, node.simulate(exploration))
        worth = self.children[chosen][0] + worth
        self.visits[chosen] += 1
        self.quality[chosen] += (worth - self.quality[chosen]) / _F(self.visits[chosen])
        return worth

    def _own(self, node: _Node, worth: float) -> float:
        return worth if node.mover[0] == self.mover[0] else -worth


@pytest.mark.parametrize("rules", [TicTacToe(), ConnectFour()], ids=lambda rules: rules.name)
def test_many_trees_at_once_are_searched_as_a_plain_search_of_one_would(rules: Rules) -> None:
    states = _random_boards(rules, 12, max_moves=6, seed=1)
    evaluate = _hashed(rules.num_actions)
    found = _search(rules, states, evaluate, simulations=60, leaves=1)
    for number in range(len(states)):
        root = _Node(rules, states[number : number + 1], evaluate)
        for _ in range(60):
            root.simulate(1.25)
        assert found.visits[number].tolist() == root.visits
        seen = found.visits[number] > 0
        np.testing.assert_allclose(found.quality[number][seen], np.array(root.quality)[seen], atol=1e-5)


def test_rewards_on_the_way_count_for_who_gets_them() -> None:
    """Three moves, the second and third by player 1: whose turn it is does not alternate."""
    found = _search(_Coins(), _Coins().start(2), simulations=40, leaves=1)
    assert found.choose(np.random.default_rng(0), temperature=0.0).tolist() == [0, 0]
    root = _Node(_Coins(), _Coins().start(1), evaluate_uniformly(2))
    for _ in range(40):
        root.simulate(1.25)
    assert found.visits[0].tolist() == root.visits


class _Coins:
    """Move 0 takes 0.25 from the other, move 1 gives 0.5 to it. Player 0 moves once, player 1 twice."""

    name, num_players, num_actions, max_moves = "coins", 2, 2, 3
    obs, state = ArraySpec((1,), np.float32, 0, 3), ArraySpec((1,), np.int64, 0)

    def start(self, num: int) -> NDArray[np.int64]:
        return np.zeros((num, 1), np.int64)

    def step(self, state: NDArray[np.int64], action: NDArray[np.int64]) -> tuple[Any, Any, Any]:
        gain = np.where(action == 0, 0.25, -0.5) * np.where(self.to_move(state) == 0, 1, -1)
        after = state + 1
        return after, np.stack([gain, -gain], 1).astype(_F), after[:, 0] == 3

    def legal(self, state: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.ones((len(state), 2), np.bool_)

    def to_move(self, state: NDArray[np.int64]) -> NDArray[np.int64]:
        return (state[:, 0] > 0).astype(np.int64)

    def observe(self, state: NDArray[np.int64], player: NDArray[np.int64]) -> NDArray[np.float32]:
        return state.astype(_F)

    def cells(self, state: NDArray[np.int64]) -> NDArray[np.int8]:
        return np.zeros((len(state), 1, 1), np.int8)

    @property
    def cell_actions(self) -> NDArray[np.int64]:
        return np.zeros((1, 1), np.int64)


# --- forced moves, by a network that knows nothing

_WAYS = [{"leaves": 1}, {"leaves": 4}, {"gumbel": True, "sharpness": 1.0}]


@pytest.mark.parametrize("settings", _WAYS, ids=str)
def test_wins_and_blocks_in_tic_tac_toe_are_found(settings: dict[str, Any]) -> None:
    rules = TicTacToe()
    states = np.concatenate([_after(rules, [0, 3, 1, 4]), _after(rules, [0, 8, 1])])
    found = _search(rules, states, simulations=100, **settings)
    assert found.choose(np.random.default_rng(0), temperature=0.0).tolist() == [2, 2]


@pytest.mark.parametrize("settings", _WAYS, ids=str)
def test_wins_and_blocks_in_connect_four_are_found(settings: dict[str, Any]) -> None:
    rules = ConnectFour()
    win, block = _after(rules, [3, 0, 3, 0, 3, 1]), _after(rules, [6, 1, 0, 1, 5, 1])
    two_ways = _after(rules, [2, 2, 3, 3])  # 1 or 4: then there are two open ends
    found = _search(rules, np.concatenate([win, block, two_ways]), simulations=400, **settings)
    action = found.choose(np.random.default_rng(0), temperature=0.0)
    assert action[:2].tolist() == [3, 1]
    assert action[2] in (1, 4)


def test_a_search_of_many_simulations_plays_tic_tac_toe_perfectly() -> None:
    rules = TicTacToe()
    states = _random_boards(rules, 40, max_moves=7, seed=4)
    best = PerfectPlay(rules).values(states)
    found = _search(rules, states, simulations=4000)
    action = found.choose(np.random.default_rng(0), temperature=0.0)
    chosen = best[np.arange(len(states)), action]
    outcomes = np.sign(np.round(best.max(1), 6))
    assert np.array_equal(np.sign(np.round(chosen, 6)), outcomes)


# --- counts


@pytest.mark.parametrize("leaves", [1, 3, 8])
@pytest.mark.parametrize("gumbel", [False, True])
def test_every_simulation_is_counted_once_and_illegal_moves_never(leaves: int, gumbel: bool) -> None:
    rules = ConnectFour()
    states = _random_boards(rules, 10, max_moves=30, seed=2)
    search = TreeSearch(rules, SearchSettings(simulations=50, leaves=leaves, gumbel=gumbel, considered=4))
    found = search(states, _hashed(7), np.random.default_rng(0))
    assert found.visits.sum(1).tolist() == [50.0] * 10
    assert not found.visits[~rules.legal(states)].any()
    assert not found.policy[~rules.legal(states)].any()
    np.testing.assert_allclose(found.policy.sum(1), 1.0, atol=1e-5)
    assert np.abs(found.value).max() <= 1.0
    if leaves == 1:
        return
    # A node has been passed as often as it was entered: it was opened by the first visit, the others went on.
    trees = search._trees
    for node in range(trees.num_roots, trees.num_nodes):
        edges = trees.edge_visits[node * 7 : node * 7 + 7]
        if trees.child[trees.parent_edge[node]] == node:  # it is open
            entered = trees.edge_visits[trees.parent_edge[node]]
            assert edges.sum() <= entered - 1
            assert trees.visits[node] == 1 + edges.sum()
            assert np.abs(trees.scores[node, 0][edges > 0]).max(initial=0.0) <= 1.0 + 1e-5


def test_virtual_losses_leave_nothing_behind() -> None:
    """With all leaves worth the same, so is every mean: a loss that stayed would show."""
    rules = ConnectFour()

    def evaluate(obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        own, other = obs.reshape(len(obs), 2, -1).sum(2).T
        return np.zeros((len(obs), 7), _F), np.where(own == other, _F(0.5), _F(-0.5))  # player 0 is ahead

    search = TreeSearch(rules, SearchSettings(simulations=64, leaves=16))
    found = search(rules.start(3), evaluate, np.random.default_rng(0))
    np.testing.assert_allclose(found.quality[found.visits > 0], 0.5, atol=1e-5)
    np.testing.assert_allclose(found.value, 0.5, atol=1e-5)


def test_a_search_can_be_used_again_for_more_and_for_fewer_games() -> None:
    rules, search = TicTacToe(), TreeSearch(TicTacToe(), SearchSettings(simulations=30, leaves=1))
    states = _random_boards(rules, 9, max_moves=5, seed=8)
    evaluate, rng = _hashed(9), np.random.default_rng(0)
    whole = search(states, evaluate, rng).visits
    for number in (0, 4, 8):
        assert np.array_equal(search(states[number : number + 1], evaluate, rng).visits[0], whole[number])
    assert search(states[:0], evaluate, rng).visits.shape == (0, 9)
    assert np.array_equal(search(states, evaluate, rng).visits, whole)


# --- chance


def test_noise_moves_the_root_alone_and_only_where_it_is_asked_for() -> None:
    rules = ConnectFour()
    settings = SearchSettings(simulations=40, leaves=1, noise=0.5, noise_alpha=0.3)
    search, states = TreeSearch(rules, settings), rules.start(6)
    plain = search(states, _hashed(7), np.random.default_rng(0), noise=False)
    assert np.array_equal(plain.visits, _search(rules, states, _hashed(7), simulations=40, leaves=1).visits)
    noisy = search(states, _hashed(7), np.random.default_rng(0))
    assert len(np.unique(noisy.visits, axis=0)) > 1


def test_noise_weighs_as_much_as_the_priors_that_it_replaces() -> None:
    def evaluate(obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.zeros((len(obs), 7), _F), _hashed(7)(obs)[1]

    rules = ConnectFour()
    settings = {"simulations": 60, "leaves": 1, "exploration": 3.0}
    plain = _search(rules, rules.start(1), evaluate, **settings)
    even = _search(rules, rules.start(1), evaluate, noise=1.0, noise_alpha=1e9, **settings)
    assert np.array_equal(plain.visits, even.visits)


def test_a_roots_value_is_what_was_found_for_who_moves() -> None:
    rules = TicTacToe()
    for moves in ([0, 3, 1, 4], [8, 0, 3, 1, 4]):  # either player wins at 2
        state = rules.start(1)
        for move in moves:
            state = rules.step(state, np.array([move]))[0]
        assert _search(rules, state, simulations=100, leaves=1).value[0] > 0.7


def test_moves_are_drawn_by_their_visits() -> None:
    visits = np.repeat(np.array([[0.0, 10.0, 30.0]], _F), 4000, axis=0)
    found = SearchResult(visits=visits, policy=visits, quality=visits, value=visits[:, 0], halved=None)
    counts = np.bincount(found.choose(np.random.default_rng(0)), minlength=3)
    assert counts[0] == 0
    assert 0.22 < counts[1] / 4000 < 0.28
    assert (found.choose(np.random.default_rng(0), temperature=0.0) == 2).all()
    sharp = np.bincount(found.choose(np.random.default_rng(0), temperature=0.5))
    assert 0.08 < sharp[1] / 4000 < 0.12, "1 to 9"


# --- what cannot be searched


def test_settings_and_games_that_do_not_go_together_are_named() -> None:
    with pytest.raises(ConfigError, match="simulations=0"):
        SearchSettings(simulations=0)
    with pytest.raises(ConfigError, match="noise of its own"):
        SearchSettings(gumbel=True, noise=0.25)

    class _Three(TicTacToe):
        num_players = 3

    with pytest.raises(ConfigError, match="has 3 players"):
        TreeSearch(_Three(), SearchSettings())
