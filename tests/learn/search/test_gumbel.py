"""Sequential halving, and the improved policy of a Gumbel root."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.envs.boards.perfect_play import PerfectPlay
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.learn.search.gumbel import GumbelRoot, halving_visits
from ludus.learn.search.search import TreeSearch
from ludus.learn.search.settings import SearchSettings


def test_halving_gives_each_round_the_same_number_of_simulations() -> None:
    # 4 moves, 16 simulations: 2 each of 4, then 4 each of 2.
    turns = halving_visits(4, 16)
    assert turns.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert halving_visits(1, 5).tolist() == [0, 1, 2, 3, 4]
    assert len(halving_visits(16, 7)) == 7


def test_the_move_that_is_left_is_the_best_of_those_considered() -> None:
    """Bandits whose arms are worth what they are worth: no tree at all."""
    rng = np.random.default_rng(0)
    worth = rng.permuted(np.tile(np.linspace(-1.0, 1.0, 8), (50, 1)), axis=1).astype(np.float32)
    settings = SearchSettings(simulations=32, gumbel=True, considered=8, sharpness=1.0)
    root = GumbelRoot(settings, np.zeros((50, 8), np.float32), np.zeros(50, np.float32), rng)
    visits = np.zeros((50, 8), np.float32)
    rows = np.arange(50)
    for turn in range(32):
        chosen = root.choose(turn, visits, worth)
        visits[rows, chosen] += 1
    assert (root.action(visits, worth) == worth.argmax(1)).all()
    assert sorted(visits[0].tolist()) == [1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 11.0, 11.0]


def test_few_moves_are_considered_and_no_illegal_one() -> None:
    logits = np.zeros((20, 9), np.float32)
    logits[:, 5:] = -np.inf
    settings = SearchSettings(simulations=12, gumbel=True, considered=3)
    root = GumbelRoot(settings, logits, np.zeros(20, np.float32), np.random.default_rng(1))
    visits, quality = np.zeros((20, 9), np.float32), np.where(np.isfinite(logits), 0.0, -np.inf).astype(np.float32)
    for turn in range(12):
        visits[np.arange(20), root.choose(turn, visits, quality)] += 1
    assert ((visits > 0).sum(1) == 3).all()
    assert not visits[:, 5:].any()
    assert not root.policy(visits, quality)[:, 5:].any()


def test_no_more_moves_are_considered_than_are_legal() -> None:
    logits = np.where(np.arange(9) < 5, 0.0, -np.inf).astype(np.float32)[None]
    settings = SearchSettings(simulations=20, gumbel=True, considered=9)
    root = GumbelRoot(settings, logits, np.zeros(1, np.float32), np.random.default_rng(1))
    visits, quality = np.zeros((1, 9), np.float32), np.where(np.isfinite(logits), 0.0, -np.inf).astype(np.float32)
    wanted = halving_visits(5, 20)
    for turn in range(20):
        chosen = root.choose(turn, visits, quality)[0]
        assert visits[0, chosen] == wanted[turn]
        visits[0, chosen] += 1


def test_what_is_learnt_and_what_is_played_follow_from_visits_and_values() -> None:
    settings = SearchSettings(simulations=8, gumbel=True)
    logits, visits = np.zeros((1, 2), np.float32), np.array([[4.0, 0.0]], np.float32)
    roots = [GumbelRoot(settings, logits, np.float32([-0.9]), np.random.default_rng(seed)) for seed in range(20)]
    policies = [root.policy(visits, np.float32([[-0.9, -0.9]])) for root in roots]
    np.testing.assert_allclose(policies, np.full((20, 1, 2), 0.5), atol=1e-6, err_msg="by what is known, both alike")
    plain = GumbelRoot(settings, logits, np.zeros(1, np.float32), np.random.default_rng(0), noise=False)
    better_but_seldom = np.float32([[5.0, 1.0]]), np.float32([[0.0, 0.9]])
    assert plain.action(*better_but_seldom).tolist() == [0]


def test_a_root_is_worth_to_its_mover_what_the_network_says() -> None:
    rules = TicTacToe()
    state = rules.step(rules.start(1), np.array([4]))[0]  # player 1 is to move
    settings = SearchSettings(simulations=1, gumbel=True, leaves=1)

    def evaluate(obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.zeros((len(obs), 9), np.float32), np.full(len(obs), 0.5, np.float32)

    found = TreeSearch(rules, settings)(state, evaluate, np.random.default_rng(0), noise=False)
    logits = np.where(rules.legal(state), np.log(1 / 8), -np.inf).astype(np.float32)
    root = GumbelRoot(settings, logits, np.float32([0.5]), np.random.default_rng(0), noise=False)
    np.testing.assert_allclose(found.policy, root.policy(found.visits, found.quality), atol=1e-6)


def test_the_improved_policy_is_worth_more_than_the_priors() -> None:
    """By perfect play, in tic-tac-toe: on average over boards, though 8 simulations do not even try all moves."""
    rules, rng = TicTacToe(), np.random.default_rng(2)
    states = _boards(rules, 150, rng)
    exact = PerfectPlay(rules).values(states)
    worth = np.where(np.isfinite(exact), exact, 0.0)
    weight = rng.normal(size=(18, 9)).astype(np.float32)

    def evaluate(obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.tanh(obs @ weight), np.zeros(len(obs), np.float32)

    search = TreeSearch(rules, SearchSettings(simulations=8, gumbel=True, considered=4, leaves=1))
    improved = search(states, evaluate, rng).policy
    logits = np.where(rules.legal(states), evaluate(rules.observe(states, rules.to_move(states)))[0], -np.inf)
    prior = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert (improved * worth).sum(1).mean() > (prior * worth).sum(1).mean() + 0.05


def _boards(rules: TicTacToe, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
    state = rules.start(num)
    for _ in range(4):
        drawn = np.where(rules.legal(state), rng.random((num, 9)), -1.0)
        state = rules.step(state, drawn.argmax(1))[0]  # the earliest end is after 5
    return state
