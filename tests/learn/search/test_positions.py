"""What a network has said is found again under the same weights, and only then."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ludus.core import Rules
from ludus.data.actions import Discrete
from ludus.envs.boards.connect_four import ConnectFour
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.learn.search.evaluator import PolicyEvaluator
from ludus.learn.search.positions import Positions
from ludus.learn.search.search import TreeSearch
from ludus.learn.search.settings import MANY_GAMES, SearchSettings

TICTACTOE = TicTacToe()


class Counting:
    """A network of weights 0 that counts the rows it is asked for."""

    def __init__(self, rules: Rules = TICTACTOE) -> None:
        self.num_rows = 0
        self.weights = 0
        shape = (math.prod(rules.obs.shape), rules.num_actions)
        self._weight = np.random.default_rng(1).normal(size=shape).astype(np.float32)

    def __call__(self, obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        self.num_rows += len(obs)
        logits = np.stack([row @ self._weight for row in obs])  # row by row: bit by bit alike
        return logits, np.tanh(logits.sum(1) * np.float32(0.1))

    def fingerprint(self) -> int:
        return self.weights


class Apart(Counting):
    """The same, which computes logits and values apart."""

    is_apart = True

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        self.num_logits = self.num_values = 0

    def logits(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        self.num_logits += len(obs)
        return self(obs)[0]

    def value(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        self.num_values += len(obs)
        return self(obs)[1]


class Plain:
    """The same, without a fingerprint."""

    def __init__(self) -> None:
        self.inner = Counting()

    def __call__(self, obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.inner(obs)


def test_a_search_finds_the_same_and_asks_less() -> None:
    rules, rng = TicTacToe(), np.random.default_rng(0)
    search = TreeSearch(rules, SearchSettings(simulations=60, leaves=2))
    counting, plain = Counting(), Plain()
    states = rules.start(20)
    expected = search(states, plain, rng)
    found = search(states, counting, rng)
    assert np.array_equal(found.visits, expected.visits)
    assert np.array_equal(found.policy, expected.policy)
    assert counting.num_rows < plain.inner.num_rows / 10, "all games are alike"
    before = counting.num_rows
    again = search(states, counting, rng)
    assert np.array_equal(again.visits, expected.visits)
    assert counting.num_rows == before
    counting.weights = 1
    search(states, counting, rng)
    assert counting.num_rows == 2 * before


@pytest.mark.parametrize("gumbel", [False, True])
@pytest.mark.parametrize("rules", [TicTacToe(), ConnectFour()], ids=lambda rules: rules.name)
def test_logits_that_are_computed_later_change_nothing_and_are_fewer(rules: Rules, gumbel: bool) -> None:
    search = TreeSearch(rules, SearchSettings(simulations=60, leaves=1, gumbel=gumbel))
    apart, together, states = Apart(rules), Counting(rules), rules.start(MANY_GAMES)
    rng = np.random.default_rng(3)
    for _ in range(4):  # until some games are over, and begin again
        chances = rng.integers(1 << 30)
        expected = search(states, together, np.random.default_rng(chances))
        apart.weights, together.weights = together.weights + 1, together.weights + 2  # nothing is remembered
        found = search(states, apart, np.random.default_rng(chances))
        for name in ("visits", "policy", "quality", "value"):
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name
        moves = (rules.legal(states) * rng.random((len(states), rules.num_actions))).argmax(1)
        states, _, over = rules.step(states, moves)
        states[over] = rules.start(int(over.sum()))
        together.weights += 1
    assert 0 < apart.num_logits < (0.7 if rules.num_actions == 7 else 0.9) * apart.num_values


def test_positions_that_meet_at_one_place_are_not_taken_for_each_other() -> None:
    positions = Positions(TicTacToe())
    positions.of_weights(1)
    states = np.array([[1, 2, 2], [1, 2, 2], [4, 8, 2]])
    place = np.array([5, 5, 5])
    chosen, like = positions.first_of_each(states, place)
    assert np.array_equal(states[chosen][like], states)
    assert chosen.tolist() == [0, 2]
    places, is_here = positions.find(states)
    assert not is_here.any()
    assert places[0] == places[1] != places[2]
    positions.claim(states[2:], places[:1])  # another one has the place of the first
    assert not positions.find(states)[1].any()
    positions.claim(states, places)
    assert positions.find(states)[1].all()


def test_what_is_known_of_a_position_goes_when_another_takes_its_place_and_with_the_weights() -> None:
    positions, place = Positions(TicTacToe()), np.array([5])
    positions.of_weights(1)
    positions.claim(np.array([[1, 2, 2]]), place)
    assert not positions.knows(positions.value, place).any()
    positions.write(positions.value, place, np.ones(1, np.float32))
    assert positions.knows(positions.value, place).all()
    assert not positions.knows(positions.scores, place).any()
    positions.write(positions.scores, place, np.zeros((1, 2, 9), np.float32))
    positions.claim(np.array([[4, 8, 2]]), place)
    for column in (positions.value, positions.scores):
        assert not positions.knows(column, place).any()
    positions.write(positions.value, place, np.ones(1, np.float32))
    positions.of_weights(1)
    assert positions.knows(positions.value, place).all()
    positions.of_weights(2)
    assert not positions.knows(positions.value, place).any()


def test_every_change_of_a_policy_changes_its_fingerprint() -> None:
    spec = PolicySpec(obs=TicTacToe.obs, action=Discrete(9), network=NetworkConfig(hidden=(8,)), normalise_returns=True)
    policy = Policy(spec)
    evaluate = PolicyEvaluator(policy, TicTacToe())
    seen = [evaluate.fingerprint()]
    assert evaluate.fingerprint() == seen[0]
    with torch.no_grad():
        for tensor in (*policy.parameters(), *policy.buffers()):
            tensor.view(-1)[0] += 0.5
            seen.append(evaluate.fingerprint())
    assert len(set(seen)) == len(seen)
